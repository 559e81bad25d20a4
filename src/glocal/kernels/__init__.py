"""The only fast code: functions of raw tensors. `reference` is the definition, `select` chooses a backend."""
