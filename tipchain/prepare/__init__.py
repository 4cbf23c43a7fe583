"""What runs need before they start: data, and a look at what pip would fetch."""
