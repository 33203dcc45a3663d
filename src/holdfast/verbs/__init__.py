"""What agents say: each verb is built from the few methods of `Runtime`."""
