"""Entry point of ``python -m otlp``, the same as the command ``otlp``."""

from otlp.cli import main

if __name__ == "__main__":
    main(prog_name="otlp")
