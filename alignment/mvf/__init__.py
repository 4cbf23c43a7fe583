"""MVFNet: multi-view fusion for efficient video recognition."""
