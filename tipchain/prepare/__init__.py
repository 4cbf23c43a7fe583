"""What runs need before they start: data."""
