"""The order example: reserve stock, charge the card, choose a shipping option, ship, send a receipt."""
