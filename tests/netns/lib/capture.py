# SPDX-License-Identifier: GPL-2.0
"""Packets as they come out of a link, with the time at which they did."""

from __future__ import annotations

import ctypes
import dataclasses
import socket
import struct
import time

from lib import traffic
from lib.netns import Namespace

_ETH_P_ALL = 0x0003
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SOL_PACKET = 263
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_TP_STATUS_VLAN_VALID = 0x10
_SNAPLEN = 160
_IPPROTO_TCP, _IPPROTO_UDP = 6, 17

TCP_FIN, TCP_SYN, TCP_RST, TCP_PSH, TCP_ACK = 1, 2, 4, 8, 16


@dataclasses.dataclass(frozen=True)
class Packet:
    time: int  # ns, CLOCK_REALTIME
    length: int  # bytes, with the Ethernet header, as qdiscs count
    version: int = 0  # of IP, or 0
    dscp: int = 0
    ecn: int = 0
    proto: int = 0  # of IP
    sport: int = 0
    dport: int = 0
    vlan: int | None = None
    # Of a datagram of ours:
    flow: int | None = None
    seq: int = -1
    sent: int = 0  # ns, CLOCK_REALTIME
    # Of TCP:
    tcp_flags: int = 0
    tcp_seq: int = 0
    tcp_payload: int = 0  # bytes

    @property
    def waited(self) -> int:
        """ns from the sender's call to the capture."""
        return self.time - self.sent

    @property
    def is_pure_ack(self) -> bool:
        return self.tcp_flags == TCP_ACK and self.tcp_payload == 0


def _parse_ip(frame: bytes, at: int) -> tuple[dict[str, int], int, int] | None:
    """Fields, offset of the transport header and length of what is in it."""
    version = frame[at] >> 4
    if version == 4:
        head = (frame[at] & 15) * 4
        tos, total, proto = frame[at + 1], struct.unpack_from("!H", frame, at + 2)[0], frame[at + 9]
        inside = total - head
    elif version == 6:
        word, inside, proto = struct.unpack_from("!IHB", frame, at)
        tos, head = word >> 20 & 255, 40
    else:
        return None
    fields = {"version": version, "dscp": tos >> 2, "ecn": tos & 3, "proto": proto}
    return fields, at + head, inside


def _parse(frame: bytes, when: int, length: int, vlan: int | None) -> Packet:
    at, kind = 14, struct.unpack_from("!H", frame, 12)[0]
    if kind == 0x8100:
        vlan, kind = struct.unpack_from("!HH", frame, 14)
        at = 18
    parsed = _parse_ip(frame, at) if kind in (0x0800, 0x86DD) else None
    if parsed is None:
        return Packet(when, length, vlan=vlan)
    fields, at, inside = parsed
    packet = Packet(when, length, vlan=vlan, **fields)
    if fields["proto"] == _IPPROTO_UDP:
        sport, dport = struct.unpack_from("!HH", frame, at)
        ours = traffic.read_header(frame, at + 8)
        if ours is None:
            return dataclasses.replace(packet, sport=sport, dport=dport)
        flow, seq, sent = ours
        return dataclasses.replace(
            packet, sport=sport, dport=dport, flow=flow, seq=seq, sent=sent
        )
    if fields["proto"] == _IPPROTO_TCP:
        sport, dport, seq, _, offset, flags = struct.unpack_from("!HHIIBB", frame, at)
        return dataclasses.replace(
            packet,
            sport=sport,
            dport=dport,
            tcp_flags=flags & 0x3F,
            tcp_seq=seq,
            tcp_payload=inside - (offset >> 4) * 4,
        )
    return packet


class Capture:
    """An AF_PACKET socket on a device: what comes in, or what goes out."""

    def __init__(self, ns: Namespace, dev: str = "eth0", *, outgoing: bool = False) -> None:
        self._outgoing = outgoing
        self._sock = ns.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 512 << 20)
        self._sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        self._sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, int(not outgoing))
        self._keep_only_heads()
        with ns.inside():
            self._sock.bind((dev, _ETH_P_ALL))
        self._sock.setblocking(False)

    def _keep_only_heads(self) -> None:
        """A BPF program of one instruction, `ret #_SNAPLEN`."""
        code = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, _SNAPLEN))
        program = struct.pack("HP", 1, ctypes.addressof(code))
        self._sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def read(self) -> list[Packet]:
        """Everything captured since the last call."""
        packets = []
        while True:
            try:
                frame, ancillary, _, address = self._sock.recvmsg(_SNAPLEN, 256)
            except BlockingIOError:
                return packets
            if (address[2] == socket.PACKET_OUTGOING) == self._outgoing:
                packets.append(self._packet(frame, ancillary))

    @staticmethod
    def _packet(frame: bytes, ancillary: list[tuple[int, int, bytes]]) -> Packet:
        when, length, vlan = 0, len(frame), None
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                seconds, ns = struct.unpack("qq", data)
                when = seconds * 10**9 + ns
            elif (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
                status, length, _, _, _, tci = struct.unpack_from("IIIHHH", data)
                vlan = tci if status & _TP_STATUS_VLAN_VALID else None
        return _parse(frame, when, length, vlan)

    def ours(self) -> list[Packet]:
        """The datagrams of traffic.Udp among what was captured since the last call."""
        return [p for p in self.read() if p.flow is not None]

    def ours_until(self, count: int, *, limit: float = 20) -> list[Packet]:
        """Wait until so many of our datagrams have come; at most `limit` seconds."""
        packets = self.ours()
        end = time.monotonic() + limit
        while len(packets) < count and time.monotonic() < end:
            time.sleep(0.01)
            packets += self.ours()
        return packets

    def close(self) -> None:
        self._sock.close()
