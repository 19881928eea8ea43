"""Link quality: what the links between peers carry and cost, and which addresses can be reached."""
