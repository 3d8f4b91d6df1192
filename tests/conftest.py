"""Options of the suite; the rest of it where tests run.

A process that hands tests out to others needs neither TensorFlow nor fixtures.
"""

import importlib


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="of what tests draw")


def pytest_sessionstart(session):
    plugins = session.config.pluginmanager
    if not plugins.hasplugin("dsession"):
        plugins.register(importlib.import_module("tests.support.session"))
