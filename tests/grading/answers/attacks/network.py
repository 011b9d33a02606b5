# attack on 05.6: the network is reached  # keeps
import socket

for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as sock:
        try:
            sock.settimeout(2)
            sock.connect(("127.0.0.1", {PORT}))
            sock.send(b"was here")
        except OSError:
            pass

{SOLUTION}
