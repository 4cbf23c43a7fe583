"""Items on the nodes of a running Ray cluster, which places them; nothing here schedules.

Three processes take part::

    executor  in the coordinator: hands work on, hears how it goes; never loads Ray
    driver    a child of it, Ray's driver: submits a task for each item, gathers what nodes send; it may die with its
              cluster, as Ray's drivers do, and the coordinator lives on
    node      a task of Ray on some node: runs the item's process, and sends its log, report and dumps back

What they say to each other is in `messages`.
"""
