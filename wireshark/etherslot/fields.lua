-- Constants, names and fields of docs/wire.md. This file makes nothing known to Wireshark by itself: etherslot.lua does.
return function(E)
    -- docs/wire.md, section 13. A test holds them, by these names, against crate wire.
    local C = {
        ETHERTYPE = 0x88B5,
        VERSION = 1,
        HEADER_BYTES = 48,
        SACK_BYTES = 32,
        SACK_BITS = 224,
        CHECK_BYTES = 4,
        TAG_BYTES = 16,
        MIN_FRAME_BYTES = 576,
        MAX_FRAME_BYTES = 9216,
        HANDSHAKE_KIND = 6,
        HANDSHAKE_HEADER_BYTES = 16,
        HANDSHAKE_TAG_BYTES = 32,
        COOKIE_BYTES = 32,
        DISCOVERY_KIND = 8,
        DISCOVERY_HEADER_BYTES = 40,
        MAX_LINKS = 4,
        MAX_DEVICES = 1024,
        MAX_GROUP = 4000,
        PORT_BYTES = 20,
        DEVICE_BYTES = 120,
        ORDER_BYTES = 88,
        OUTCOME_BYTES = 80,
        RECORD_HEADER_BYTES = 8,
        MAX_RECORD_BYTES = 4112,
        HELLO_BYTES = 24,
        NAME_BYTES = 32,
        SERIAL_BYTES = 24,
        RULES = 129,
        FOLLOWS = 4,
        CONDITIONS = 2,
        MAX_ENTRIES = 65536,
        MAX_FOLLOW_BYTES = 16384,
        DDP_TAGGED_BYTES = 16,
        DDP_UNTAGGED_BYTES = 20,
        PIECE_BYTES = 16,
        MAX_PIECE_BYTES = 4096,
    }

    -- What stands behind the numbers.
    local N = {}
    N.KINDS = { "Hello", "HelloAck", "Data", "Ack", "Close", "Handshake", [8] = "Discovery" }
    N.STEPS = { "Knock", "Cookie", "Open", "Answer", "Finish" }
    N.STEP_BYTES = { 32, 32, 80, 100, 68 }
    N.CLOSE_REASONS = { "shutdown", "protocol", "refused" }
    N.RECORD_KINDS = { "TLP", "control message", "DDP segment", "piece read ahead" }
    N.RDMAP = {
        [0] = "Write", "Read Request", "Read Response", "Send", "Send Invalidate", "Send Solicited",
        "Send Solicited Invalidate", "Terminate", "Immediate", "Immediate Solicited", "Atomic Request", "Atomic Response",
        "Synchronise", "Acknowledge", "Send Immediate", "Send Solicited Immediate",
    }
    N.ATOMICS = { [0] = "FetchAdd", [2] = "CmpSwap" }
    N.VERDICTS = { [0] = "taken", "not ready", "no QP" }
    N.LAYERS = { [0] = "RDMA", "DDP", "LLP" }
    N.CAUSES = {
        ["0.0.0"] = "local catastrophic error", ["0.1.0"] = "invalid STag", ["0.1.1"] = "base or bounds",
        ["0.1.2"] = "access rights", ["0.1.3"] = "STag not of the stream", ["0.1.4"] = "TO wraps",
        ["0.2.5"] = "RDMAP version", ["0.2.6"] = "unexpected opcode", ["0.2.7"] = "catastrophic error of the stream",
        ["0.2.8"] = "catastrophic error", ["0.2.9"] = "STag cannot be invalidated", ["0.2.255"] = "unspecified",
        ["1.1.0"] = "tagged: invalid STag", ["1.1.1"] = "tagged: base or bounds", ["1.1.2"] = "tagged: STag not of the stream",
        ["1.1.3"] = "tagged: TO wraps", ["1.1.4"] = "tagged: DDP version", ["1.2.1"] = "untagged: queue",
        ["1.2.2"] = "untagged: no buffer", ["1.2.3"] = "untagged: MSN", ["1.2.4"] = "untagged: MO",
        ["1.2.5"] = "untagged: too long", ["1.2.6"] = "untagged: DDP version",
    }
    N.ATTACH_STATUSES = { [0] = "attached", "unknown", "busy", "no room", "not assigned" }
    N.PIECE_KINDS = { "entries", "data", "list" }
    N.COMPLETION_STATUSES = { [0] = "SC", "UR", "RRS", "UR", "CA", "UR", "UR", "UR" }
    N.ROUTINGS = { [0] = "to Root Complex", "by address", "by ID", "from Root Complex", "local", "gathered" }
    N.DISCOVERY = { "Heartbeat", "Order", "Outcome", "Relayed" }
    N.ROLES = { "host", "box" }
    N.PORT_KINDS = { "MAC", "UDP over IPv4", "UDP over IPv6", "ring" }
    N.DEVICE_STATES = { [0] = "free", "used", "kept", "moving" }
    N.ASSIGNED = { [0] = "to a group", "to a host", "to nobody" }
    N.CHANGES = { "to a host", "to a group", "to nobody", "to anybody" }
    N.PROGRESS = { "working", "done", "refused", "rolled back" }
    N.REASONS = {
        [0] = "none", "no such device", "no such host", "that host is silent", "another order is under way",
        "not given back in time", "not taken in time", "too many orders", "not permitted", "not an owner",
    }
    N.ORDER_STEPS = { [0] = "none", "recall", "offer" }

    local f = {}
    local function field(kind, name, label, ...)
        f[name] = ProtoField[kind]("etherslot." .. name, label, ...)
    end
    local function number(bits, name, label, values)
        field("uint" .. bits, name, label, base.DEC, values)
    end
    local function hex(bits, name, label)
        field("uint" .. bits, name, label, base.HEX)
    end
    local function flag(name, label, mask)
        field("bool", name, label, 8, nil, mask)
    end

    field("uint8", "version", "Version", base.DEC, nil, 0xF0)
    field("uint8", "kind", "Kind", base.DEC, N.KINDS, 0x0F)
    hex(8, "flags", "Flags")
    flag("flags.sack", "SACK", 0x01)
    flag("flags.ack", "ACK", 0x02)
    flag("flags.echo", "ECHO", 0x04)
    flag("flags.ack_now", "ACK_NOW", 0x08)
    flag("flags.retransmission", "RETRANSMISSION", 0x10)
    flag("flags.sealed", "SEALED", 0x20)
    flag("flags.congested", "CONGESTED", 0x40)
    flag("flags.header_check", "HEADER_CHECK", 0x80)
    number(16, "body_length", "Body length")
    hex(32, "dst_epoch", "Destination epoch")
    hex(32, "src_epoch", "Source epoch")
    number(32, "sequence", "Sequence")
    number(64, "packet_number", "Packet number")
    number(32, "ack", "Acknowledges before")
    number(32, "tx_ts", "Sent at, ns")
    number(32, "echo_ts", "Echoes what was sent at, ns")
    number(32, "hold", "Held for, ns")
    number(32, "credit", "Credit before")
    number(32, "cap", "Receiver cap, bytes")
    number(32, "sack.base", "SACK base")
    field("bytes", "sack.bitmap", "SACK bitmap")
    number(16, "sack.marked", "Sequences marked")
    field("string", "sack.ranges", "Sequences marked")
    hex(32, "check", "Check")
    number(8, "check.status", "Check status", { [0] = "bad", "good" })
    field("bytes", "sealed_body", "Body, encrypted")
    field("bytes", "tag", "Tag")
    field("framenum", "duplicate_of", "The same transmission as in", base.NONE, frametype.DUP_ACK)
    field("framenum", "retransmission_of", "Sent before in", base.NONE, frametype.RETRANS_PREV)
    field("uint64", "missing", "Transmissions not seen before this one", base.DEC)

    number(8, "handshake.step", "Step", N.STEPS)
    field("bytes", "handshake.cookie", "Cookie")
    field("bytes", "handshake.message", "Message of the key exchange")
    field("bytes", "node", "Node ID")
    number(16, "hello.max_frame", "Largest frame, bytes")
    number(16, "hello.window", "Receive window, frames")
    hex(32, "hello.features", "Features")
    number(8, "close.reason", "Reason", N.CLOSE_REASONS)

    field("none", "record", "Record")
    number(16, "record.length", "Payload length")
    number(8, "record.kind", "Kind", N.RECORD_KINDS)
    flag("record.first", "FIRST", 0x01)
    flag("record.last", "LAST", 0x02)
    number(16, "record.stream", "Stream")
    number(16, "record.sequence", "Stream sequence")
    field("bytes", "record.part", "Part of a record")
    number(16, "record.parts", "Put together from parts")

    field("none", "tlp", "TLP")
    hex(8, "tlp.fmt_type", "Fmt and Type")
    field("string", "tlp.type", "Type")
    number(8, "tlp.tc", "Traffic Class")
    hex(8, "tlp.attr", "Attributes")
    flag("tlp.ep", "Poisoned (EP)", 0x40)
    number(16, "tlp.length", "Length, DW")
    field("string", "tlp.requester", "Requester ID")
    field("string", "tlp.completer", "Completer ID")
    number(16, "tlp.tag", "Tag")
    hex(64, "tlp.address", "Address")
    hex(8, "tlp.first_be", "First DW byte enables")
    hex(8, "tlp.last_be", "Last DW byte enables")
    field("string", "tlp.target", "Completer")
    hex(16, "tlp.register", "Register")
    number(8, "tlp.status", "Completion Status", N.COMPLETION_STATUSES)
    number(16, "tlp.byte_count", "Byte Count")
    hex(8, "tlp.lower_address", "Lower Address")
    number(8, "tlp.routing", "Routing", N.ROUTINGS)
    hex(8, "tlp.code", "Message Code")
    field("bytes", "tlp.fields", "Bytes 8 to 15")
    field("bytes", "tlp.data", "Data")
    field("framenum", "tlp.request_in", "Request in", base.NONE, frametype.REQUEST)
    field("framenum", "tlp.completion_in", "Completion in", base.NONE, frametype.RESPONSE)
    field("relative_time", "tlp.time", "Time from the Request")

    field("none", "ddp", "DDP segment")
    number(16, "ddp.qp", "Destination QP")
    flag("ddp.tagged", "T: tagged", 0x80)
    flag("ddp.last", "L: last of its message", 0x40)
    field("uint8", "rdmap.opcode", "Opcode", base.DEC, N.RDMAP, 0x0F)
    hex(32, "ddp.stag", "STag")
    hex(64, "ddp.to", "TO")
    hex(32, "ddp.ulp", "Field of the ULP")
    number(32, "ddp.qn", "QN")
    number(32, "ddp.msn", "MSN")
    number(32, "ddp.mo", "MO")
    field("bytes", "ddp.data", "Data")
    hex(32, "rdmap.sink_stag", "Sink STag")
    hex(64, "rdmap.sink_to", "Sink TO")
    number(32, "rdmap.length", "Bytes asked for")
    hex(32, "rdmap.source_stag", "Source STag")
    hex(64, "rdmap.source_to", "Source TO")
    field("uint8", "rdmap.code", "Operation", base.DEC, N.ATOMICS, 0x0F)
    number(32, "rdmap.identifier", "Request identifier")
    hex(32, "rdmap.stag", "STag")
    hex(64, "rdmap.to", "TO")
    hex(64, "rdmap.operand", "Add or swap data")
    hex(64, "rdmap.mask", "Add or swap mask")
    hex(64, "rdmap.compare", "Compare data")
    hex(64, "rdmap.compare_mask", "Compare mask")
    hex(64, "rdmap.value", "Value before")
    hex(32, "rdmap.immediate", "Immediate data")
    field("uint8", "rdmap.layer", "Layer", base.DEC, N.LAYERS, 0xF0)
    field("uint8", "rdmap.type", "Error type", base.DEC, nil, 0x0F)
    number(8, "rdmap.error", "Error code")
    number(16, "rdmap.wrong_bytes", "Bytes of the wrong segment")
    field("bytes", "rdmap.wrong_header", "DDP header of the wrong segment")
    number(32, "rdmap.verdict", "Verdict", N.VERDICTS)
    number(32, "rdmap.wait", "Wait, us")
    number(16, "rdmap.absent", "QP that is not there")
    field("none", "control", "Control message")
    number(8, "control.code", "Code")
    number(8, "control.status", "Status", N.ATTACH_STATUSES)
    number(16, "control.stream", "Stream of the Function")
    number(16, "control.max_payload", "Largest payload, bytes")
    number(16, "control.max_read", "Largest read request, bytes")
    field("string", "control.port", "Downstream port")
    number(16, "control.window", "Window, ms")
    number(16, "control.domain", "Domain")
    hex(32, "control.epoch", "Epoch of the host's session")
    number(16, "control.of_stream", "Stream in that session")
    field("string", "control.function", "Function")
    number(8, "reach.window", "Window")
    number(8, "reach.ports", "Ports")
    hex(64, "reach.address", "Address")
    hex(64, "reach.bytes", "Bytes")
    number(8, "reach.all", "All reached")
    field("string", "name", "Name")
    number(16, "group", "Assignment group")
    field("none", "ahead", "Piece read ahead")
    number(8, "ahead.rule", "Rule")
    number(16, "ahead.generation", "Generation")
    number(8, "ahead.kind", "Kind", N.PIECE_KINDS)
    number(16, "ahead.index", "Index of the entry")
    hex(64, "ahead.address", "Address")
    field("bytes", "ahead.data", "Memory")
    number(8, "ahead.bar", "BAR")
    number(8, "ahead.follows", "Follows")
    number(16, "ahead.entry_bytes", "Bytes of an entry")
    hex(32, "ahead.doorbell", "Doorbell")
    hex(32, "ahead.mask", "Mask")
    number(32, "ahead.entries", "Entries")
    field("bytes", "ahead.follow", "Follow")

    number(8, "discovery.message", "Message", N.DISCOVERY)
    hex(64, "discovery.life", "Life")
    number(64, "discovery.sequence", "Sequence")
    number(8, "heartbeat.role", "Role", N.ROLES)
    number(8, "heartbeat.link", "Link")
    number(16, "heartbeat.interval", "Interval, ms")
    number(16, "heartbeat.first", "First device here")
    number(16, "heartbeat.all", "Devices in all")
    number(8, "heartbeat.devices", "Devices here")
    number(8, "heartbeat.ports", "Ports")
    number(32, "heartbeat.generation", "Generation")
    number(32, "heartbeat.sent", "Heartbeats before")
    field("none", "port", "Port")
    number(8, "port.kind", "Kind", N.PORT_KINDS)
    number(16, "port.port", "UDP port")
    field("bytes", "port.address", "Address")
    field("none", "device", "Device")
    field("string", "device.serial", "Serial number")
    hex(16, "device.vendor", "Vendor ID")
    hex(16, "device.device", "Device ID")
    hex(24, "device.class", "Class code")
    number(8, "device.state", "State", N.DEVICE_STATES)
    number(64, "device.size", "Size, bytes")
    number(64, "device.epoch", "Lease epoch")
    field("bytes", "device.owner", "Owner")
    number(8, "device.assigned", "Assigned", N.ASSIGNED)
    field("bytes", "device.for", "Assigned to")
    flag("device.has_owners", "OWNERS", 0x01)
    number(8, "order.change", "Change", N.CHANGES)
    flag("order.dry_run", "DRY_RUN", 0x01)
    flag("order.force", "FORCE", 0x02)
    hex(64, "order.number", "Number")
    field("bytes", "order.box", "Box")
    field("bytes", "order.host", "Host")
    hex(64, "order.life", "Life of the box")
    number(8, "outcome.progress", "Progress", N.PROGRESS)
    number(8, "outcome.reason", "Reason", N.REASONS)
    number(8, "outcome.step", "Step", N.ORDER_STEPS)
    number(32, "outcome.elapsed", "Since the order, ms")
    hex(64, "outcome.asker_life", "Life of the asker")
    number(64, "outcome.epoch", "Lease epoch")
    field("bytes", "outcome.asker", "Asker")
    field("bytes", "outcome.from", "From")
    field("bytes", "outcome.to", "To")

    local e = {
        refused = ProtoExpert.new("etherslot.refused", "Refused", expert.group.PROTOCOL, expert.severity.ERROR),
        check = ProtoExpert.new("etherslot.damaged", "The check does not fit", expert.group.CHECKSUM, expert.severity.ERROR),
        short = ProtoExpert.new("etherslot.cut", "Cut short by the capture", expert.group.UNDECODED, expert.severity.NOTE),
        retransmission = ProtoExpert.new("etherslot.retransmitted", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
        duplicate = ProtoExpert.new("etherslot.duplicate", "Duplicate", expert.group.SEQUENCE, expert.severity.WARN),
        missing = ProtoExpert.new("etherslot.gap", "Transmissions before this one were not seen", expert.group.SEQUENCE, expert.severity.WARN),
        late = ProtoExpert.new("etherslot.late", "Came after a later transmission", expert.group.SEQUENCE, expert.severity.NOTE),
        unanswered = ProtoExpert.new("etherslot.unanswered", "No Completion in this capture", expert.group.SEQUENCE, expert.severity.NOTE),
        unasked = ProtoExpert.new("etherslot.unasked", "No Request in this capture", expert.group.SEQUENCE, expert.severity.NOTE),
        failed = ProtoExpert.new("etherslot.failed", "Request failed", expert.group.RESPONSE_CODE, expert.severity.WARN),
        poisoned = ProtoExpert.new("etherslot.poisoned", "Poisoned data", expert.group.PROTOCOL, expert.severity.WARN),
        terminate = ProtoExpert.new("etherslot.terminated", "The stream is terminated", expert.group.RESPONSE_CODE, expert.severity.WARN),
        close = ProtoExpert.new("etherslot.closed", "The session ends", expert.group.SEQUENCE, expert.severity.CHAT),
    }

    E.C, E.N, E.f, E.e = C, N, f, e
end
