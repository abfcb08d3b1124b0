-- Etherslot for Wireshark and tshark: frames, sessions, records, TLPs and discovery as docs/wire.md has them,
-- DDP segments as docs/rnic.md has them.
-- docs/wireshark.md tells how to install and use it. Lua 5.2 to 5.4. The parts are in the folder etherslot beside this file.
--
-- What a receiver would refuse is marked (etherslot.refused) and not looked into further. No frame, however
-- malformed, may end in a Lua error: all readers are called with bytes that are there.

-- Other files of Lua may have been loaded by Wireshark in any order, these among them: each part is a function and
-- does nothing before it is called here.
local folder = debug.getinfo(1, "S").source:match("^@?(.*[/\\])") or ""
local E = {}
for _, name in ipairs({ "fields", "reading", "tlp", "ddp", "records", "discovery" }) do
    dofile(folder .. "etherslot/" .. name .. ".lua")(E)
end
local C, N, f, e = E.C, E.N, E.f, E.e
local u8, u16, u32, add, refuse = E.u8, E.u16, E.u32, E.add, E.refuse

local etherslot = Proto("etherslot", "Etherslot")
etherslot.fields, etherslot.experts = {}, {}
local fields, experts = {}, {}
for _, one in pairs(f) do
    fields[#fields + 1] = one
end
for _, one in pairs(e) do
    experts[#experts + 1] = one
end
etherslot.fields, etherslot.experts = fields, experts

etherslot.prefs.udp_port =
    Pref.uint("UDP port", 0, "Decode this UDP port as Etherslot, whatever its datagrams look like; 0: none")
etherslot.prefs.heuristic =
    Pref.bool("Look for Etherslot in all UDP datagrams", true, "Take those that are whole frames by their own lengths")
etherslot.prefs.check =
    Pref.bool("Verify checks", false, "Compute CRC-32C of every frame that is not sealed; slow in large captures")
E.prefs = etherslot.prefs

local DATA, SACK, SEALED, HEADER_CHECK, RETRANSMISSION = 3, 0x01, 0x20, 0x80, 0x10
-- Records that the Info column names.
local MOST_TOLD = 6

local function has(flags, bit)
    return math.floor(flags / bit) % 2 == 1
end

-- What is remembered of a capture --------------------------------------------------------------------------------

-- `ways` by source epoch: what one side of a session has sent. `memos` by frame: what was found out about it when it was
-- read first, in the capture's order; later readings, in any order, show that.
local ways, memos = {}, {}

function etherslot.init()
    ways, memos = {}, {}
end

function E.way_of(epoch)
    local way = ways[epoch]
    if not way then
        way = { newest = -1, numbers = {}, sequences = {}, parts = {}, waiting = {} }
        ways[epoch] = way
    end
    return way
end

-- Has this transmission been seen, has its sequence? `frame` is its number in the capture.
local function track(memo, frame, header)
    local way = E.way_of(header.src_epoch)
    local first = way.numbers[header.packet_number]
    if first then
        memo.duplicate_of = first
        return
    end
    way.numbers[header.packet_number] = frame
    if header.packet_number > way.newest then
        memo.missing = way.newest >= 0 and header.packet_number - way.newest - 1 or 0
        way.newest = header.packet_number
    else
        memo.is_late = true
    end
    if header.kind == DATA then
        memo.retransmission_of = way.sequences[header.sequence]
        memo.is_new = not memo.retransmission_of
        if memo.is_new then
            way.sequences[header.sequence] = frame
        end
    end
end

local function show_track(tree, memo, header, info)
    if memo.duplicate_of then
        tree:add(f.duplicate_of, memo.duplicate_of):set_generated()
        tree:add_proto_expert_info(e.duplicate)
        info[#info + 1] = "[duplicate]"
    elseif memo.retransmission_of then
        tree:add(f.retransmission_of, memo.retransmission_of):set_generated()
        tree:add_proto_expert_info(e.retransmission)
        info[#info + 1] = "[retransmission]"
    elseif header.is_retransmission then
        tree:add_proto_expert_info(e.retransmission, "Retransmission of what this capture does not have")
        info[#info + 1] = "[retransmission]"
    end
    if (memo.missing or 0) > 0 then
        local low = memo.missing % 2 ^ 32
        tree:add(f.missing, UInt64.new(low, (memo.missing - low) / 2 ^ 32)):set_generated()
        tree:add_proto_expert_info(e.missing)
    elseif memo.is_late then
        tree:add_proto_expert_info(e.late)
    end
end

-- Frames ---------------------------------------------------------------------------------------------------------

local function show_sack(tvb, tree)
    local base, ranges, marked, from = u32(tvb, C.HEADER_BYTES), {}, 0, nil
    local bitmap = tvb(C.HEADER_BYTES + 4, C.SACK_BYTES - 4)
    for index = 0, C.SACK_BITS do
        local is_marked = index < C.SACK_BITS and bitmap:bitfield(index, 1) == 1
        marked = marked + (is_marked and 1 or 0)
        if is_marked and not from then
            from = index
        elseif from and not is_marked then
            local first, last = (base + from) % 0x100000000, (base + index - 1) % 0x100000000
            ranges[#ranges + 1] = from == index - 1 and string.format("%d", first) or string.format("%d-%d", first, last)
            from = nil
        end
    end
    tree:add(f["sack.base"], tvb(C.HEADER_BYTES, 4))
    tree:add(f["sack.bitmap"], bitmap)
    tree:add(f["sack.marked"], bitmap, marked):set_generated()
    tree:add(f["sack.ranges"], bitmap, table.concat(ranges, " ")):set_generated()
end

local FLAGS = { "sack", "ack", "echo", "ack_now", "retransmission", "sealed", "congested", "header_check" }

-- A frame of a session, its version and kind known.
local function session(tvb, tree, memo, pinfo, info)
    if tvb:len() < C.HEADER_BYTES then
        return refuse(tree, "shorter than its header")
    end
    local kind, flags, length = u8(tvb, 0) % 16, u8(tvb, 1), u16(tvb, 2)
    local shown = tree:add(f.flags, tvb(1, 1))
    for _, name in ipairs(FLAGS) do
        shown:add(f["flags." .. name], tvb(1, 1))
    end
    add(tree, tvb, {
        { "body_length", 2, 2 }, { "dst_epoch", 4, 4 }, { "src_epoch", 8, 4 }, { "sequence", 12, 4 },
        { "packet_number", 16, 8 }, { "tx_ts", 28, 4 },
    })
    if has(flags, 0x02) then
        add(tree, tvb, { { "ack", 24, 4 }, { "credit", 40, 4 }, { "cap", 44, 4 } })
    end
    if has(flags, 0x04) then
        add(tree, tvb, { { "echo_ts", 32, 4 }, { "hold", 36, 4 } })
    end
    local is_sealed, head = has(flags, SEALED), C.HEADER_BYTES
    if has(flags, HEADER_CHECK) and (kind ~= DATA or is_sealed) then
        return refuse(tree, "HEADER_CHECK is not for this frame")
    end
    if has(flags, SACK) then
        head = head + C.SACK_BYTES
        if tvb:len() < head then
            return refuse(tree, "shorter than its SACK block")
        end
        show_sack(tvb, tree)
    end
    local last = head + length
    if tvb:len() < last + (is_sealed and C.TAG_BYTES or C.CHECK_BYTES) then
        if tvb:reported_len() > tvb:len() then
            tree:add_proto_expert_info(e.short)
            return nil
        end
        return refuse(tree, "shorter than it says")
    end
    local header = {
        kind = kind, src_epoch = u32(tvb, 8), dst_epoch = u32(tvb, 4), sequence = u32(tvb, 12),
        packet_number = u32(tvb, 16) * 2 ^ 32 + u32(tvb, 20), is_retransmission = has(flags, RETRANSMISSION),
    }
    if is_sealed then
        if length > 0 then
            tree:add(f.sealed_body, tvb(head, length))
        end
        tree:add(f.tag, tvb(last, C.TAG_BYTES))
        info[#info + 1] = string.format("sealed, %d bytes", length)
    elseif not E.check(tree, tvb, last, has(flags, HEADER_CHECK) and head or last, memo) then
        info[#info + 1] = "[damaged]"
        return nil
    end
    if not memo.is_done then
        track(memo, pinfo.number, header)
    end
    show_track(tree, memo, header, info)
    local body = not is_sealed and E.part(tvb, head, length) or nil
    if is_sealed then
        return nil
    elseif kind == 1 or kind == 2 then
        E.hello(body, tree)
    elseif kind == 5 then
        info[#info + 1] = E.close(body, tree)
    elseif kind == DATA then
        local place = {
            memo = memo, frame = pinfo.number, time = pinfo.rel_ts, is_visited = pinfo.visited,
            src_epoch = header.src_epoch, dst_epoch = header.dst_epoch,
        }
        E.records(body, tree, place, info)
    end
end

local function handshake(tvb, tree, info)
    if tvb:len() < C.HANDSHAKE_HEADER_BYTES then
        return refuse(tree, "shorter than its header")
    end
    add(tree, tvb, { { "flags", 1, 1 }, { "body_length", 2, 2 }, { "dst_epoch", 4, 4 }, { "src_epoch", 8, 4 } })
    tree:add(f["handshake.step"], tvb(12, 1))
    local step, length = u8(tvb, 12), u16(tvb, 2)
    local last = C.HANDSHAKE_HEADER_BYTES + length
    info[#info + 1] = N.STEPS[step]
    if u8(tvb, 1) ~= SEALED then
        return refuse(tree, "flags that there are not")
    elseif not N.STEPS[step] then
        return refuse(tree, "a step that there is not")
    elseif tvb:len() < last + C.HANDSHAKE_TAG_BYTES then
        return refuse(tree, "shorter than it says")
    end
    tree:add(f.tag, tvb(last, C.HANDSHAKE_TAG_BYTES))
    if length ~= N.STEP_BYTES[step] then
        return refuse(tree, "a body of another length")
    end
    local at = C.HANDSHAKE_HEADER_BYTES
    if step == 2 or step == 3 then
        tree:add(f["handshake.cookie"], tvb(at, C.COOKIE_BYTES))
        at = at + C.COOKIE_BYTES
    end
    if step >= 3 then
        tree:add(f["handshake.message"], tvb(at, last - at))
    end
end

-- One frame, from its first byte on.
local function frame(tvb, pinfo, root, place)
    local tree = root:add(etherslot, tvb())
    local kind = u8(tvb, 0) % 16
    tree:add(f.version, tvb(0, 1))
    tree:add(f.kind, tvb(0, 1))
    if math.floor(u8(tvb, 0) / 16) ~= C.VERSION then
        refuse(tree, "a version that there is not")
        return "version?"
    elseif not N.KINDS[kind] then
        refuse(tree, "a kind that there is not")
        return "kind?"
    end
    local id = pinfo.number .. "/" .. place
    local memo = memos[id] or {}
    memos[id] = memo
    local info = {}
    if kind == C.HANDSHAKE_KIND then
        handshake(tvb, tree, info)
    elseif kind == C.DISCOVERY_KIND then
        info[1] = E.discovery(tvb, tree, memo)
    else
        session(tvb, tree, memo, pinfo, info)
        if tvb:len() >= C.HEADER_BYTES then
            table.insert(info, 1, string.format("seq %d", u32(tvb, 12)))
        end
    end
    memo.is_done = true
    if #info > MOST_TOLD then
        info[MOST_TOLD] = string.format("and %d more", #info - MOST_TOLD + 1)
    end
    local told = N.KINDS[kind] .. " " .. table.concat(info, " | ", 1, math.min(#info, MOST_TOLD))
    tree:append_text(", " .. told)
    return told
end

-- How long the frame at the start of a Tvb is by its own word; nil if it has none.
local function length_of(tvb)
    local bytes = tvb:len()
    if bytes < C.HANDSHAKE_HEADER_BYTES or math.floor(u8(tvb, 0) / 16) ~= C.VERSION then
        return nil
    end
    local kind, flags, body = u8(tvb, 0) % 16, u8(tvb, 1), u16(tvb, 2)
    if kind == C.HANDSHAKE_KIND then
        return C.HANDSHAKE_HEADER_BYTES + body + C.HANDSHAKE_TAG_BYTES
    elseif kind == C.DISCOVERY_KIND then
        -- With its tag, if it has one, it is alone in its datagram.
        local length = C.DISCOVERY_HEADER_BYTES + body + C.CHECK_BYTES
        return bytes == length + C.HANDSHAKE_TAG_BYTES and bytes or length
    elseif N.KINDS[kind] then
        return C.HEADER_BYTES + (has(flags, SACK) and C.SACK_BYTES or 0) + body
            + (has(flags, SEALED) and C.TAG_BYTES or C.CHECK_BYTES)
    end
end

-- The frames of a datagram, or of several that the capture has in one (segmentation offload): where each begins. Nil if
-- they do not fill it.
local function frames_of(tvb)
    local starts, at = {}, 0
    while at < tvb:len() do
        local length = length_of(at == 0 and tvb or tvb(at):tvb())
        if not length or at + length > tvb:reported_len() then
            return nil
        end
        starts[#starts + 1] = { at = at, length = math.min(length, tvb:len() - at) }
        at = at + length
    end
    return starts
end

function etherslot.dissector(tvb, pinfo, root)
    if tvb:len() == 0 then
        return 0
    end
    pinfo.cols.protocol = "Etherslot"
    -- An Ethernet frame may be padded; a datagram is filled by whole frames.
    local starts = pinfo.port_type == 3 and frames_of(tvb) or { { at = 0 } }
    local told = {}
    for place, start in ipairs(starts) do
        local one = tvb
        if start.length and #starts > 1 then
            one = tvb(start.at, start.length):tvb()
        end
        told[#told + 1] = frame(one, pinfo, root, place)
    end
    pinfo.cols.info = table.concat(told, " || ", 1, math.min(#told, MOST_TOLD))
    return tvb:len()
end

-- Registration ---------------------------------------------------------------------------------------------------

DissectorTable.get("ethertype"):add(C.ETHERTYPE, etherslot)

local udp = DissectorTable.get("udp.port")
local port = 0
function etherslot.prefs_changed()
    if port ~= etherslot.prefs.udp_port then
        if port ~= 0 then
            udp:remove(port, etherslot)
        end
        port = etherslot.prefs.udp_port
        if port ~= 0 then
            udp:add(port, etherslot)
        end
    end
end

etherslot:register_heuristic("udp", function(tvb, pinfo, root)
    if not etherslot.prefs.heuristic or not frames_of(tvb) then
        return false
    end
    etherslot.dissector(tvb, pinfo, root)
    return true
end)
