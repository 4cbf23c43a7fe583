"""Training a case's Paddle side on several processes: `group` starts them, `worker` is one of them, `steps` trains."""
