"""The order of test files."""

LONGEST = (
    "test_docs test_processes test_ways_to_train test_readme test_sweep test_attackers test_papers"
    " test_script_processes test_hostile_speech test_gallery test_endpoints test_pace test_allreduce test_bad_input"
    " test_refused_newcomers test_failing_runs test_memory_limit"
).split()
"""Files that take longest, the longest first: begun last, one of them would keep a worker when all others are done."""
