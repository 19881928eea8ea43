"""The order of test files."""

LONGEST = (
    "test_ways_to_train test_processes test_docs test_sweep test_parameter_server_processes test_attackers"
    " test_readme test_process_ends test_table_runs test_script_processes test_parameter_server test_relay"
    " test_pace test_sandblaster test_recipes test_endpoints test_gossip_processes test_python_api test_run_ends"
    " test_gossip test_swim test_sweep_verb test_gallery test_terminal test_faults test_zeromq test_stalls"
    " test_wheel test_wire test_crashes test_hostile_speech test_joining test_lateness test_averagers"
    " test_site_periods test_mutants test_gate test_algorithms test_edge test_overlay test_invite_verb test_limits"
    " test_killed_server_processes test_last_values test_server_crashes test_overlap test_python test_learners"
    " test_hostile test_edges test_gossip_capacity"
).split()
"""Files that take longest, the longest first: begun last, one of them would keep a worker when all others are done."""
