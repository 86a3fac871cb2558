"""Runs each client library against private servers and writes what it sent: capture.py SCRATCH TARGET, by capture.sh.

Text stands as text; whatever is not printable text stands as {"base64": …}.
"""

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import redis

scratch, target = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))


def main():
    with Redis() as server:
        env = {"REDIS_URL": server.url, "BROKER_URL": server.url}
        ruby = ["ruby", f"{here}/sidekiq.rb"]
        write("sidekiq6", ruby, lambda run: server.seen(run), env)
        if "SIDEKIQ8" in os.environ:
            write("sidekiq8", ruby, lambda run: server.seen(run), {**env, "SIDEKIQ8": os.environ["SIDEKIQ8"]})
        write("asynq", [f"{scratch}/asynq"], lambda run: server.seen(run), env)
        write("celery_redis", [sys.executable, f"{here}/celery_client.py"], lambda run: server.seen(run), env)
        write("bullmq", ["node", f"{here}/bullmq.cjs"], lambda run: server.seen(run), env)
    write("webhook", [f"{scratch}/webhooks/bin/python", f"{here}/webhook.py"], lambda run: {"headers": json.loads(run())})
    with RabbitMq() as server:
        write("celery_rabbitmq", [sys.executable, f"{here}/celery_client.py"], server.seen, {"BROKER_URL": server.url})


def write(name, program, capture, env={}):
    """One file: for each case of the program its input, and what was seen while it ran."""
    env = {key: value for key, value in {**os.environ, **env}.items() if key != "SIDEKIQ8" or key in env}
    cases, library = json.loads(subprocess.check_output(program, env=env)), None
    captured = []
    for case, given in cases.items():
        said = {}

        def run():
            done = subprocess.run([*program, case], env=env, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{name} {case}: {done.stdout}{done.stderr}")
            said["library"] = done.stderr.strip().splitlines()[-1]
            said["stdout"] = done.stdout
            return done.stdout

        seen = capture(run)
        library = said["library"]
        if name == "asynq" and said["stdout"]:
            seen["answer"] = said["stdout"].strip()
        captured.append({"case": case, "input": given, **seen})
    with open(f"{target}/{name}.json", "w", encoding="utf-8") as file:
        json.dump({"library": library, "cases": captured}, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(f"{name}: {library}, {len(captured)} cases")


def shown(data):
    try:
        text = data.decode()
        if all(sign >= " " or sign in "\n\t" for sign in text):
            return text
    except UnicodeDecodeError:
        pass
    return {"base64": base64.b64encode(data).decode()}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Redis:
    def __enter__(self):
        port = free_port()
        self.url = f"redis://127.0.0.1:{port}/0"
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", scratch]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis.Redis(port=port)
        self.port = port
        until(lambda: self.client.ping())
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def seen(self, run):
        self.client.flushall()
        monitor = socket.create_connection(("127.0.0.1", self.port))
        monitor.sendall(b"MONITOR\r\n")
        lines = monitor.makefile("rb")
        lines.readline()
        run()
        self.client.echo("the end of the capture")
        commands = []
        for line in lines:
            by, words = parsed(line)
            if words[0].upper() == b"ECHO":
                break
            # What a client asks about the server, and scripts as they are loaded, are no part of the format.
            if words[0].upper() in (b"INFO", b"HELLO", b"CLIENT", b"PING", b"SELECT", b"COMMAND"):
                continue
            if words[0].upper() == b"EVAL":
                words = [words[0], b"(source)", *words[2:]]
            commands.append({"by": by, "command": [shown(word) for word in words]})
        monitor.close()
        return {"commands": commands, "keys": {key.decode(): self.value(key) for key in sorted(self.client.keys())}}

    def value(self, key):
        kind = self.client.type(key).decode()
        if kind == "string":
            value = shown(self.client.get(key))
        elif kind == "hash":
            value = {field.decode(): shown(one) for field, one in sorted(self.client.hgetall(key).items())}
        elif kind == "list":
            value = [shown(one) for one in self.client.lrange(key, 0, -1)]
        elif kind == "set":
            value = sorted(shown(one) for one in self.client.smembers(key))
        elif kind == "zset":
            value = [[shown(one), score] for one, score in self.client.zrange(key, 0, -1, withscores=True)]
        else:
            value = [{field.decode(): shown(one) for field, one in entry.items()} for _, entry in self.client.xrange(key)]
        return {"type": kind, "value": value, "expires": self.client.pttl(key) > 0}


ESCAPE = re.compile(rb'\\(x[0-9a-f]{2}|.)')
PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def parsed(line):
    """+1700000000.123456 [0 127.0.0.1:1234] "words" "with \\x00 escapes": who said it, and the words."""
    by = b"lua" if b"[0 lua]" in line else b"client"
    words = re.findall(rb'"((?:[^"\\]|\\.)*)"', line.split(b"] ", 1)[1])

    def plain(found):
        code = found.group(1)
        return bytes([int(code[1:], 16)]) if code[:1] == b"x" and len(code) == 3 else PLAIN.get(code, code)

    return by.decode(), [ESCAPE.sub(plain, word) for word in words]


class RabbitMq:
    """A private server, and a listener before it that writes down what the client says."""

    def __enter__(self):
        self.port, mapper, listening = free_port(), free_port(), free_port()
        place = f"{scratch}/rabbitmq"
        os.mkdir(place)
        for name, text in (("rabbitmq.conf", f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlog.console = true\n"), ("plugins", "[].\n")):
            with open(f"{place}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        env = {**os.environ, "HOME": place, "RABBITMQ_NODENAME": "capture@localhost", "RABBITMQ_LOGS": "-"}
        env.update(RABBITMQ_DIST_PORT=str(free_port()), ERL_EPMD_PORT=str(mapper), ERL_EPMD_ADDRESS="127.0.0.1")
        env.update(RABBITMQ_MNESIA_BASE=f"{place}/mnesia", RABBITMQ_LOG_BASE=f"{place}/log", RABBITMQ_CONFIG_FILE=f"{place}/rabbitmq")
        env.update(RABBITMQ_GENERATED_CONFIG_DIR=f"{place}/generated", RABBITMQ_ENABLED_PLUGINS_FILE=f"{place}/plugins")
        env.update(RABBITMQ_PID_FILE=f"{place}/pid", RABBITMQ_CONF_ENV_FILE=f"{place}/none", RUNNING_UNDER_SYSTEMD="true")
        self.mapper = subprocess.Popen(["epmd", "-address", "127.0.0.1", "-port", str(mapper)])
        folder = os.environ.get("POSTHASTE_RABBITMQ_BIN", "/usr/lib/rabbitmq/bin")
        self.server = subprocess.Popen([f"{folder}/rabbitmq-server"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: socket.create_connection(("127.0.0.1", self.port)).close() is None)
        self.listener = socket.create_server(("127.0.0.1", listening))
        threading.Thread(target=self.listen, daemon=True).start()
        self.url = f"amqp://guest:guest@127.0.0.1:{listening}//"
        return self

    def __exit__(self, *_):
        for process in (self.server, self.mapper):
            process.kill()
            process.wait()

    def listen(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.carry, args=(client, server, self.said), daemon=True).start()
            threading.Thread(target=self.carry, args=(server, client, None), daemon=True).start()

    def carry(self, source, goal, said):
        try:
            while data := source.recv(65536):
                if said is not None:
                    said += data
                goal.sendall(data)
            goal.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def seen(self, run):
        import kombu

        self.said = bytearray()
        run()
        time.sleep(0.2)
        frames, at = [], 8
        while at < len(self.said):
            kind, size = self.said[at], int.from_bytes(self.said[at + 3 : at + 7], "big")
            frames.append((kind, bytes(self.said[at + 7 : at + 7 + size])))
            at += 8 + size
        # Method 60.40 is basic.publish; a content header and the body follow.
        publish = next(n for n, (kind, data) in enumerate(frames) if kind == 1 and data[:4] == b"\0\x3c\0\x28")
        method, header, *rest = frames[publish:]
        body = b"".join(data for kind, data in rest if kind == 3)
        with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{self.port}//") as connection:
            channel = connection.channel()
            for queue in ("mail", "celery"):
                channel.queue_declare(queue, durable=True, auto_delete=False)
            gets = (channel.basic_get(queue, no_ack=True) for queue in ("mail", "celery"))
            found = next((found for found in gets if found is not None), None)
        # RabbitMQ refuses an expiration of 2^32 milliseconds or more, which Celery sends for a far `expires`.
        arrived = found and {
            "exchange": found.delivery_info["exchange"],
            "routing_key": found.delivery_info["routing_key"],
            "properties": dict(found.properties),
            "body": found.body if isinstance(found.body, str) else shown(bytes(found.body)),
        }
        return {
            "arrived": arrived,
            "frames": {
                "publish": base64.b64encode(method[1]).decode(),
                "header": base64.b64encode(header[1]).decode(),
                "body": base64.b64encode(body).decode(),
            },
        }


def until(holds):
    for _ in range(3000):
        try:
            if holds():
                return
        except (OSError, redis.ConnectionError):
            pass
        time.sleep(0.02)
    sys.exit("a server did not start")


main()
