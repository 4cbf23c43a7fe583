"""A second zoo, written without looking at the catalogue of causes: nets, faults and expectations of its own."""
