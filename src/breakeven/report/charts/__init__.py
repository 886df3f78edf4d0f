"""Charts as coordinates: each module turns rows into what its template of the same name draws.

Every chart is laid out twice, for a desktop and for a phone (:data:`~.frame.WIDE` and
:data:`~.frame.NARROW`), because text in a scaled-down drawing cannot be read.
"""
