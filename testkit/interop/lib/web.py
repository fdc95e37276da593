#!/usr/bin/env python3
"""A server of the web that may lie: gives the files of a folder, and does what the name of a path says.

usage: web.py PORT FOLDER
Each request is a line on standard output.
"""
import os
import socket
import sys
import threading
import time

OK = b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n'


def lie(sock, path):
    """Sends what a path of this name stands for; False when it stands for nothing."""
    if path == '/hang':
        time.sleep(60)
    elif path == '/endless':
        sock.sendall(OK)
        while True:
            sock.sendall(bytes(65536))
    elif path == '/drip':
        sock.sendall(OK)
        for _ in range(600):
            sock.sendall(b'x')
            time.sleep(0.1)
    elif path == '/header':
        sock.sendall(b'HTTP/1.1 200 OK\r\n' + b'X-Long: ' + b'x' * (1 << 20) + b'\r\n\r\n')
    elif path == '/file':
        sock.sendall(b'HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n')
    elif path == '/loopback':
        sock.sendall(b'HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1/link.crl\r\n\r\n')
    elif path == '/rubbish':
        sock.sendall(OK + os.urandom(5000))
    else:
        return False
    return True


def serve(sock, folder):
    try:
        request = b''
        while b'\r\n\r\n' not in request:
            part = sock.recv(4096)
            if not part:
                return
            request += part
        method, path = request.split(b'\r\n')[0].decode('ascii', 'replace').split(' ')[:2]
        print(method, path, flush=True)
        if lie(sock, path.split('?')[0]):
            return
        name = os.path.join(folder, os.path.basename(path))
        if not os.path.isfile(name):
            sock.sendall(b'HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n')
            return
        with open(name, 'rb') as f:
            body = f.read()
        sock.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
    except OSError:
        pass
    finally:
        sock.close()


def main():
    port, folder = sys.argv[1:]
    server = socket.create_server(('', int(port)), reuse_port=True)
    print('ready', flush=True)
    while True:
        sock, _ = server.accept()
        threading.Thread(target=serve, args=(sock, folder), daemon=True).start()


main()
