import http.client
import http.server
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from greeting import GuestBook, greet


class GreetingTest(unittest.TestCase):
    def test_a_name_is_greeted(self):
        self.assertEqual(greet(" Ada "), "Hello, Ada!")

    def test_nobody_is_refused(self):
        with self.assertRaises(ValueError):
            greet("  ")

    def test_the_pool_greets_too(self):
        with multiprocessing.Pool(2) as pool:
            self.assertEqual(pool.map(greet, ["a", "b"]), ["Hello, a!", "Hello, b!"])

    def test_another_process_greets_too(self):
        script = "from greeting import greet; print(greet('Ada'))"
        output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(output.stdout, "Hello, Ada!\n")


class GuestBookTest(unittest.TestCase):
    def test_visits_are_remembered(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "book.sqlite"
            for visits in (1, 2):
                book = GuestBook(path)
                self.assertEqual(book.sign("Ada"), visits)
                book.close()


class NetworkTest(unittest.TestCase):
    def test_loopback_works(self):
        server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        connection = http.client.HTTPConnection("localhost", server.server_port, timeout=10)
        connection.request("GET", "/")
        self.assertEqual(connection.getresponse().status, 200)
        thread.join()
        server.server_close()


if __name__ == "__main__":
    unittest.main()
