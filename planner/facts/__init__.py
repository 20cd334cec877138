"""What is: frozen values that probes, the GGUF analyzer and the user supply. Nothing here decides."""
