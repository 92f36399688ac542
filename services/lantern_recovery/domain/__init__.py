"""What a sweep decides: how often it runs, and which executor takes which run."""
