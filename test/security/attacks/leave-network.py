"""Tries to reach a server in every way that a program has, and prints which ones did."""
import json
import os
import socket
import struct
import sys

host, port, datagram_port, other_run_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
proxy = ('127.0.0.1', 3128)
reached = {}


def attempt(name, way):
    try:
        reached[name] = bool(way())
    except OSError as error:
        reached[name] = False
        errors[name] = str(error)


errors = {}


def answers(made):
    made.settimeout(3)
    made.sendall(b'GET / HTTP/1.0\r\n\r\n')
    return b'canary' in made.recv(4096)


def direct(to=None):
    return answers(socket.create_connection((to or host, port), 3))


def datagram(to, on):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(1)
    made.connect((to, on))
    made.send(b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04data\x04evil\x04test\x00\x00\x10\x00\x01')
    answer = made.recv(512)
    # The name server of a jail answers; what counts is whether it found something.
    return b'canary' in answer or (len(answer) > 3 and answer[3] & 15 == 0)


def raw():
    made = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    made.settimeout(1)
    made.sendto(struct.pack('!BBHHH', 8, 0, 0xF7FE, 1, 0), (host, 0))
    return made.recv(512)


def packet():
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))


def bound_to(device):
    made = socket.socket()
    made.settimeout(3)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    made.connect((host, port))
    return answers(made)


def other_source():
    made = socket.socket()
    made.settimeout(3)
    made.bind(('', 0))
    made.connect((host, port))
    return answers(made)


def through(target):
    made = socket.create_connection(proxy, 3)
    made.settimeout(3)
    made.sendall(f'CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n'.encode())
    if b' 200 ' not in made.recv(4096).split(b'\r\n')[0]:
        return False
    return answers(made)


def requested(url):
    made = socket.create_connection(proxy, 3)
    made.settimeout(3)
    made.sendall(f'GET {url} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'.encode())
    return b'canary' in made.recv(65536)


def socks(kind, address):
    made = socket.create_connection(proxy, 3)
    made.settimeout(3)
    made.sendall(b'\x05\x01\x00')
    made.recv(2)
    made.sendall(b'\x05\x01\x00' + bytes([kind]) + address + struct.pack('!H', port))
    return made.recv(10)[1] == 0 and answers(made)


def abstract():
    names = [line.split()[-1] for line in open('/proc/net/unix') if '@' in line]
    for name in names:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect('\0' + name[1:])
            return True
        except OSError:
            pass
    return False


attempt('direct', direct)
attempt('datagram', lambda: datagram(host, datagram_port))
attempt('other name server', lambda: datagram(host, 53))
attempt('name tunnel', lambda: datagram('127.0.0.1', 53))
attempt('raw', raw)
attempt('packet', packet)
attempt('bound to lo', lambda: bound_to(b'lo'))
attempt('other source', other_source)
attempt('other run', lambda: socket.create_connection(('127.0.0.1', other_run_port), 3))
attempt('abstract socket', abstract)
attempt('tunnel', lambda: through(f'{host}:{port}'))
attempt('request', lambda: requested(f'http://{host}:{port}/'))
attempt('socks', lambda: socks(1, socket.inet_aton(host)))
attempt('socks name', lambda: socks(3, bytes([len(host)]) + host.encode()))
number = struct.unpack('!I', socket.inet_aton(host))[0]
parts = [int(part) for part in host.split('.')]
notations = [
    str(number), hex(number), oct(number).replace('0o', '0'), '.'.join(hex(part) for part in parts),
    '.'.join(oct(part).replace('0o', '0') for part in parts), f'{parts[0]}.{number & 0xffffff}',
    f'{parts[0]}.{parts[1]}.{number & 0xffff}', f'[::ffff:{host}]', f'[::ffff:{number >> 16:x}:{number & 0xffff:x}]',
    f'[64:ff9b::{number >> 16:x}:{number & 0xffff:x}]', f'[2002:{number >> 16:x}:{number & 0xffff:x}::]', f'[::{host}]',
    f'{host}.', f'{host}%00.example.com', f'example.com@{host}',
]
for notation in notations:
    attempt(f'tunnel {notation}', lambda: through(f'{notation}:{port}'))
    attempt(f'request {notation}', lambda: requested(f'http://{notation}:{port}/'))
print(json.dumps({'reached': sorted(name for name, was in reached.items() if was), 'tried': len(reached), 'uid': os.getuid()}))
