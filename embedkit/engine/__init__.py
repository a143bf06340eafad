"""What one process shares: ``engine`` is what it does, ``opening`` how it lives, ``routes`` whom it asks."""

from embedkit.engine.engine import Engine as Engine
from embedkit.engine.engine import Indexed as Indexed
from embedkit.engine.opening import open_engine as open_engine
from embedkit.engine.route import Embeddings as Embeddings
