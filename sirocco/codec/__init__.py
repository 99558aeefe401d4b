"""Values of the engine ⇄ protobuf messages, checkpoints ⇄ bytes, errors ⇄ their wire form."""
