"""Vectors of handshake and seal, from RFC 7748 (X25519), RFC 8439 (ChaCha20-Poly1305), FIPS 197 and SP 800-38D (AES-GCM), RFC 5869
(HKDF), the Noise Protocol Framework (revision 34), and docs/wire.md. Each primitive is held against an example of its own
specification before anything is derived with it."""

import hashlib
import hmac

from derive_tlps import pack, pattern


def mac(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def expand(prk, label, length):
    """HKDF-Expand, RFC 5869, 2.3."""
    out, block = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = mac(prk, block + label + bytes([counter]))
        out += block
    return out[:length]


assert expand(mac(bytes(range(13)), b"\x0b" * 22), bytes(range(0xF0, 0xFA)), 42).hex() == (
    "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
)

# --- X25519: RFC 7748, 5 ------------------------------------------------------------------------------------------

FIELD = 2**255 - 19


def x25519(scalar, u):
    k = int.from_bytes(scalar, "little") & ((1 << 254) - 8) | 1 << 254
    x1 = int.from_bytes(u, "little") & (1 << 255) - 1
    x2, z2, x3, z3 = 1, 0, x1, 1
    for at in reversed(range(255)):
        bit = k >> at & 1
        if bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % FIELD, b * b % FIELD, d * a % FIELD, c * b % FIELD
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % FIELD, x1 * (da - cb) ** 2 % FIELD
        x2, z2 = aa * bb % FIELD, e * (aa + 121665 * e) % FIELD
        if bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
    return (x2 * pow(z2, FIELD - 2, FIELD) % FIELD).to_bytes(32, "little")


def public(secret):
    return x25519(secret, bytes([9]) + bytes(31))


assert x25519(
    bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
    bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"),
).hex() == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"

# --- ChaCha20-Poly1305: RFC 8439 ----------------------------------------------------------------------------------


def chacha_block(key, counter, nonce):
    words = lambda data: [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]
    start = words(b"expand 32-byte k" + key + counter.to_bytes(4, "little") + nonce)
    x = start[:]

    def quarter(a, b, c, d):
        for to, add, mixed, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[to] = x[to] + x[add] & 0xFFFFFFFF
            x[mixed] ^= x[to]
            x[mixed] = (x[mixed] << by | x[mixed] >> 32 - by) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            quarter(diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4, 12 + (diagonal + 3) % 4)
    return b"".join((a + b & 0xFFFFFFFF).to_bytes(4, "little") for a, b in zip(x, start))


def poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    sum_ = 0
    for at in range(0, len(data), 16):
        sum_ = (sum_ + int.from_bytes(data[at:at + 16] + b"\x01", "little")) * r % (2**130 - 5)
    return (sum_ + int.from_bytes(key[16:], "little") & (1 << 128) - 1).to_bytes(16, "little")


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def padded(data):
    return data + bytes(-len(data) % 16)


def chacha20poly1305(key, nonce, plain, associated):
    stream = b"".join(chacha_block(key, 1 + at, nonce) for at in range(-(-len(plain) // 64)))
    cipher = xor(plain, stream)
    lengths = b"".join(len(part).to_bytes(8, "little") for part in (associated, cipher))
    return cipher + poly1305(chacha_block(key, 0, nonce)[:32], padded(associated) + padded(cipher) + lengths)


assert chacha20poly1305(
    bytes(range(0x80, 0xA0)), bytes.fromhex("070000004041424344454647"),
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.",
    bytes.fromhex("50515253c0c1c2c3c4c5c6c7"),
)[-16:].hex() == "1ae10b594f09e26a7e902ecbd0600691"

# --- AES-256-GCM: FIPS 197, SP 800-38D ----------------------------------------------------------------------------


def doubled(byte):
    return byte << 1 ^ (0x11B if byte & 0x80 else 0)


def times(a, b):
    made = 0
    while b:
        made ^= a if b & 1 else 0
        a, b = doubled(a), b >> 1
    return made


def substitute(byte):
    inverse = next((other for other in range(256) if times(byte, other) == 1), 0)
    rotated = lambda by: (inverse << by | inverse >> 8 - by) & 0xFF
    return inverse ^ rotated(1) ^ rotated(2) ^ rotated(3) ^ rotated(4) ^ 0x63


SBOX = [substitute(byte) for byte in range(256)]


def round_keys(key):
    words, constant = [key[at:at + 4] for at in range(0, 32, 4)], 1
    for at in range(8, 60):
        word = words[at - 1]
        if at % 8 == 0:
            word = bytes(SBOX[byte] for byte in word[1:] + word[:1])
            word, constant = bytes([word[0] ^ constant]) + word[1:], doubled(constant)
        elif at % 8 == 4:
            word = bytes(SBOX[byte] for byte in word)
        words.append(xor(words[at - 8], word))
    return [b"".join(words[at:at + 4]) for at in range(0, 60, 4)]


def aes(keys, block):
    state = xor(block, keys[0])
    for number, key in enumerate(keys[1:], 1):
        state = bytes(SBOX[state[(at + 4 * (at % 4)) % 16]] for at in range(16))
        if number < 14:
            columns = [state[at:at + 4] for at in range(0, 16, 4)]
            state = bytes(
                times(c[at], 2) ^ times(c[(at + 1) % 4], 3) ^ c[(at + 2) % 4] ^ c[(at + 3) % 4] for c in columns for at in range(4)
            )
        state = xor(state, key)
    return state


def ghash(subkey, data):
    sum_ = 0
    for at in range(0, len(data), 16):
        x, made, v = sum_ ^ int.from_bytes(data[at:at + 16], "big"), 0, subkey
        for bit in range(128):
            made ^= v if x >> 127 - bit & 1 else 0
            v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
        sum_ = made
    return sum_.to_bytes(16, "big")


def aes256gcm(key, nonce, plain, associated):
    keys = round_keys(key)
    block = lambda counter: aes(keys, nonce + counter.to_bytes(4, "big"))
    cipher = xor(plain, b"".join(block(2 + at) for at in range(-(-len(plain) // 16))))
    lengths = b"".join((8 * len(part)).to_bytes(8, "big") for part in (associated, cipher))
    subkey = int.from_bytes(aes(keys, bytes(16)), "big")
    return cipher + xor(ghash(subkey, padded(associated) + padded(cipher) + lengths), block(1))


assert aes(round_keys(bytes(range(32))), bytes.fromhex("00112233445566778899aabbccddeeff")).hex() == "8ea2b7ca516745bfeafc49904b496089"
assert aes256gcm(bytes(32), bytes(12), bytes(16), b"").hex() == "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"

# --- Sealed frames: docs/wire.md, "Sealed frames" -----------------------------------------------------------------

AEAD = {"aes-256-gcm": aes256gcm, "chacha20-poly1305": chacha20poly1305}
PHASE_FRAMES = 1 << 22


def seal(suite, secret, plain):
    """`plain` is a frame up to its check; the frame sealed with the keys that come from the traffic secret of phase 0."""
    number = int.from_bytes(plain[16:24], "big")
    for _ in range(number // PHASE_FRAMES):
        secret = expand(secret, b"etherslot next", 32)
    key, iv = expand(secret, b"etherslot key", 32), expand(secret, b"etherslot iv", 12)
    start = 80 if plain[1] & 0x01 else 48
    header = plain[:1] + bytes([plain[1] & 0x7F | 0x20]) + plain[2:start]
    return header + AEAD[suite](key, xor(iv, bytes(4) + number.to_bytes(8, "big")), plain[start:], header)


def sealed(frame, record, write):
    """Rows of sealed.json. `frame` and `record` are derive.py's, `write` is a TLP."""
    rows = []
    a, b, top = 0x0A0B0C0D, 0xF1E2D3C4, 0xFFFFFFFF
    body = record("tlp", 1, 0, write)[0]

    def data(number, **more):
        return frame("data", b, a, 7, number, 77, ack=(5, 261, top), body=more.pop("body", body), **more)[0]

    long = b"".join(record("tlp", 1, at, pattern(124, at))[0] for at in range(4))
    for at, suite in enumerate(AEAD):
        secret = pattern(32, 0x40 + at)

        def good(name, *frames):
            made = [{"plain": plain.hex(), "sealed": seal(suite, secret, plain).hex()} for plain in frames]
            rows.append({"name": f"{suite}: {name}", "suite": suite, "secret": secret.hex(), "frames": made})

        def bad(name, error, bytes_):
            rows.append({"name": f"{suite}: {name}", "suite": suite, "secret": secret.hex(), "bytes": bytes_.hex(), "error": error})

        good("Data", data(0))
        good("Data with a SACK block", data(1, sack=(6, {1, 223})))
        good("Data whose header alone had a check", data(2, header_check=True))
        good("Ack without a body", frame("ack", b, a, 0, 3, 12, ack=(1, 257, top), echo=(60_000, 50))[0])
        good("a body of several blocks", data(4, body=long))
        good("Close", frame("close", b, a, 0, 5, 15, ack=(1, 257, top), body=b"\x01")[0])
        good("the keys of phases 0, 1 and 2", *(data(number) for number in (
            PHASE_FRAMES - 1, PHASE_FRAMES, 2 * PHASE_FRAMES - 1, 2 * PHASE_FRAMES)))
        whole = seal(suite, secret, data(9))
        bad("a frame that is not sealed", "flags", data(9) + bytes(16))
        bad("tag without its last byte", "truncated", whole[:-1])
        bad("header check in a sealed frame", "flags", whole[:1] + bytes([whole[1] | 0x80]) + whole[2:])
        for place in (7, 11, 15, 23, 40, 48, len(whole) - 17, len(whole) - 16, len(whole) - 1):
            bad(f"byte {place} changed", "forged", whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
        bad("the body of another packet number", "forged", whole[:48] + seal(suite, secret, data(10))[48:])
        bad("a key two phases ahead", "phase", seal(suite, secret, data(2 * PHASE_FRAMES)))
        bad("the keys of somebody else", "forged", seal(suite, pattern(32, 0x77), data(9)))
    return rows


# --- The handshake: docs/wire.md, "Keys" --------------------------------------------------------------------------

STEP = {"knock": 1, "cookie": 2, "open": 3, "answer": 4, "finish": 5}


def fabric(key):
    prk = mac(b"etherslot fabric 1", key)
    return {label: expand(prk, label.encode(), 32) for label in ("handshake", "announcement", "psk")}


class Noise:
    """Noise_XXpsk3_25519_ChaChaPoly_SHA256, both sides at once."""

    def __init__(self, prologue, psk):
        self.h = self.ck = hashlib.sha256(b"Noise_XXpsk3_25519_ChaChaPoly_SHA256").digest()
        self.key, self.n, self.psk = None, 0, psk
        self.mix_hash(prologue)

    def mix_hash(self, data):
        self.h = hashlib.sha256(self.h + data).digest()

    def hkdf(self, material, outputs):
        temp, out, last = mac(self.ck, material), [], b""
        for number in range(1, outputs + 1):
            last = mac(temp, last + bytes([number]))
            out.append(last)
        return out

    def mix_key(self, material):
        self.ck, self.key = self.hkdf(material, 2)
        self.n = 0

    def encrypt(self, plain):
        made = chacha20poly1305(self.key, bytes(4) + self.n.to_bytes(8, "little"), plain, self.h)
        self.n += 1
        self.mix_hash(made)
        return made

    def e(self, secret):
        self.mix_hash(public(secret))
        self.mix_key(public(secret))
        return public(secret)

    def mix_psk(self):
        self.ck, temp, self.key = self.hkdf(self.psk, 3)
        self.n = 0
        self.mix_hash(temp)

    def split(self):
        return self.hkdf(b"", 2)


def exchanges():
    rows = []
    cases = (("one", 0x0A0B0C0D, 0xF1E2D3C4, 3, 1), ("without AES on either side", 1, 0xFFFFFFFF, 2, 2))
    for at, (name, active, passive, offered, chosen) in enumerate(cases):
        key, keys = pattern(32, 0x10 + at), fabric(pattern(32, 0x10 + at))
        host, box, e_host, e_box = (pattern(32, 0x20 + 8 * at + which) for which in range(4))
        prologue = b"etherslot 1     " + pack((32, active), (32, passive))
        payloads = [b"", bytes([offered, 0, 0, 0]), bytes([chosen, 0, 0, 0])]
        noise = Noise(prologue, keys["psk"])
        first = noise.e(e_host) + noise.encrypt(payloads[0])
        second = noise.e(e_box)
        noise.mix_key(x25519(e_host, public(e_box)))
        second += noise.encrypt(public(box))
        noise.mix_key(x25519(e_host, public(box)))
        second += noise.encrypt(payloads[1])
        third = noise.encrypt(public(host))
        noise.mix_key(x25519(host, public(e_box)))
        noise.mix_psk()
        third += noise.encrypt(payloads[2])
        from_active, from_passive = noise.split()
        cookie = pattern(32, 0xC0)

        def made(step, dst, src, body):
            covered = pack((4, 1), (4, 6), (8, 0x20), (16, len(body)), (32, dst), (32, src), (8, STEP[step]), (24, 0)) + body
            tagged = covered + mac(keys["handshake"], covered)
            return {"step": step, "dst_epoch": dst, "src_epoch": src, "body": body.hex(), "bytes": tagged.hex()}

        rows.append({
            "name": name, "fabric_key": key.hex(), "handshake_key": keys["handshake"].hex(),
            "announcement_key": keys["announcement"].hex(), "psk": keys["psk"].hex(), "prologue": prologue.hex(),
            "active_key": host.hex(), "active_public": public(host).hex(), "active_ephemeral": e_host.hex(),
            "passive_key": box.hex(), "passive_public": public(box).hex(), "passive_ephemeral": e_box.hex(),
            "payloads": [part.hex() for part in payloads], "messages": [part.hex() for part in (first, second, third)],
            "from_active": from_active.hex(), "from_passive": from_passive.hex(),
            "frames": [
                made("knock", 0, active, bytes(32)), made("cookie", active, passive, cookie),
                made("open", passive, active, cookie + first), made("answer", active, passive, second),
                made("finish", passive, active, third),
            ],
        })
    return rows
