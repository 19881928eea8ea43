"""The order of test files."""

LONGEST = (
    "test_ways_to_train test_docs test_processes test_readme test_papers test_recipes test_parameter_server_processes"
    " test_sweep test_script_processes test_mutants test_table_runs test_endpoints test_gate test_attackers"
    " test_parameter_server test_swim test_house test_sandblaster test_relay test_process_ends test_pace test_gossip"
    " test_overlay test_wire test_run_ends test_terminal test_gossip_processes test_invite_verb test_limits"
    " test_site_periods test_hostile test_hostile_speech test_averagers test_swim_hostile test_edge test_faults"
    " test_python_api test_sweep_verb test_overlap test_gallery test_stalls test_bad_numbers test_lateness"
    " test_half_read test_joining test_bad_input test_failing_runs test_memory_limit"
).split()
"""Files that take longest, the longest first: begun last, one of them would keep a worker when all others are done."""
