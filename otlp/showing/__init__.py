"""How objects show themselves beside their `repr`: tables and bars of a notebook."""
