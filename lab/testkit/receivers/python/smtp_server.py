"""Takes mail into a maildir, and writes one line for each; what it is told in orders.json it does instead.

{"mail": "530 log in first"}      refuses senders with this answer
{"rcpt": "550 no such user"}      refuses recipients with this answer
{"data": "451 try again"}         refuses mails with this answer, after their text
{"delay": 2.5}                    waits before it answers a mail that it has taken
{"cut": true}                     closes the connection in the place of the answer, with the mail taken

smtp_server.py PORT FOLDER [starttls|tls|open CERTIFICATE KEY USER PASSWORD]

starttls demands STARTTLS, tls encrypts from the start, and open encrypts nothing although it takes a password; all three demand USER and PASSWORD. Who tries to say them is
written into FOLDER/logins, one line each, before anything is answered.
"""

import asyncio
import json
import os
import ssl
import sys
from email import message_from_bytes, policy
from mailbox import Maildir

import effects
from aiosmtpd.smtp import SMTP, AuthResult

maildir = Maildir(os.path.join(sys.argv[2], "mail"))


def orders():
    try:
        with open(os.path.join(sys.argv[2], "orders.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


class Handler:
    async def handle_MAIL(self, server, session, envelope, address, options):
        if "mail" in orders():
            return orders()["mail"]
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(self, server, session, envelope, address, options):
        if "rcpt" in orders():
            return orders()["rcpt"]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        now = orders()
        if "data" in now:
            return now["data"]
        mail = message_from_bytes(envelope.content, policy=policy.default)
        maildir.add(envelope.content)
        content = mail.get_content()
        effects.record(
            id=mail["Message-ID"],
            name=envelope.mail_from,
            args=envelope.rcpt_tos,
            subject=mail["Subject"],
            headers=dict(mail.items()),
            text=content if isinstance(content, str) else content.hex(),
            raw=envelope.content.decode("utf-8", "replace"),
            encrypted=session.ssl is not None or MODE == "tls",
            user=session.auth_data,
        )
        await asyncio.sleep(now.get("delay", 0))
        if now.get("cut"):
            server.transport.abort()
        return "250 OK"


MODE, *REST = sys.argv[3:] or [None]


def login(server, session, envelope, mechanism, said):
    with open(os.path.join(sys.argv[2], "logins"), "a", encoding="utf-8") as file:
        file.write(f"{mechanism} {said.login.decode()}\n")
    is_known = [said.login.decode(), said.password.decode()] == REST[2:]
    return AuthResult(success=is_known, handled=False, auth_data=said.login.decode())


def settings():
    if MODE is None:
        return {}, None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*REST[:2])
    demands = {"authenticator": login, "auth_required": True, "auth_require_tls": MODE == "starttls"}
    if MODE == "starttls":
        demands |= {"tls_context": context, "require_starttls": True}
    return demands, context if MODE == "tls" else None


async def main():
    loop = asyncio.get_running_loop()
    demands, context = settings()
    smtp = lambda: SMTP(Handler(), hostname="localhost", enable_SMTPUTF8=True, **demands)
    server = await loop.create_server(smtp, "127.0.0.1", int(sys.argv[1]), ssl=context)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main())
