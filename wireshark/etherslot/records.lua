-- The bodies of sessions: Hello and Close, records (docs/wire.md, section 6), control messages (8), pieces (9).
return function(E)
    local C, N, f, e = E.C, E.N, E.f, E.e
    local u8, u16, u32, add, refuse = E.u8, E.u16, E.u32, E.add, E.refuse

    function E.hello(tvb, tree)
        if not tvb or tvb:len() < C.HELLO_BYTES then
            return refuse(tree, "a short Hello")
        end
        add(tree, tvb, {
            { "node", 0, 16 }, { "hello.max_frame", 16, 2 }, { "hello.window", 18, 2 }, { "hello.features", 20, 4 },
        })
        local max_frame = u16(tvb, 16)
        if max_frame < C.MIN_FRAME_BYTES or max_frame > C.MAX_FRAME_BYTES then
            refuse(tree, "a frame size that there is not")
        elseif u16(tvb, 18) == 0 then
            refuse(tree, "no receive window")
        end
    end

    function E.close(tvb, tree)
        local reason = tvb and N.CLOSE_REASONS[u8(tvb, 0)]
        if tvb then
            tree:add(f["close.reason"], tvb(0, 1))
        end
        tree:add_proto_expert_info(e.close, "The session ends: " .. (reason or "protocol"))
        return reason or "protocol"
    end

    local function is_group(tvb, at)
        return u16(tvb, at) <= C.MAX_GROUP
    end

    -- ReadAhead: what is wrong with it.
    local RULE_BYTES, FOLLOW_BYTES = 32, 44
    local function rule_error(tvb)
        local follows, entry, entries = u8(tvb, 5), u16(tvb, 6), u32(tvb, 24)
        if u8(tvb, 1) >= C.RULES or u8(tvb, 4) > 5 or follows > C.FOLLOWS or u32(tvb, 8) % 4 ~= 0 then
            return "a rule, BAR, doorbell or number of Follows that there is not"
        elseif entry < 1 or entry > C.MAX_PIECE_BYTES or entries < 2 or entries > C.MAX_ENTRIES then
            return "entries of a size or number that there is not"
        elseif u32(tvb, 16) == 0xFFFFFFFF and u32(tvb, 20) + entry * entries >= 0x100000000 then
            return "a ring that reaches 2^64"
        elseif tvb:len() < RULE_BYTES + follows * FOLLOW_BYTES then
            return "shorter than its Follows"
        end
        for at = RULE_BYTES, RULE_BYTES + (follows - 1) * FOLLOW_BYTES, FOLLOW_BYTES do
            local flags, conditions = u8(tvb, at), u8(tvb, at + 1)
            local pages = math.floor(flags / 2) % 2 == 1
            local is_good = flags < 8 and (pages or flags < 4) and conditions <= C.CONDITIONS
                and u16(tvb, at + 2) + 8 <= entry and (not pages or u16(tvb, at + 4) + 8 <= entry)
                and u16(tvb, at + 6) + 4 <= entry and u8(tvb, at + 14) <= 16
                and u32(tvb, at + 16) <= C.MAX_FOLLOW_BYTES
            for condition = 0, math.min(conditions, C.CONDITIONS) - 1 do
                is_good = is_good and u16(tvb, at + 20 + 12 * condition) + 4 <= entry
            end
            if not is_good then
                return "a Follow with a value that there is not"
            end
        end
    end

    local function show_rule(tvb, tree)
        for place = 0, u8(tvb, 5) - 1 do
            tree:add(f["ahead.follow"], tvb(RULE_BYTES + place * FOLLOW_BYTES, FOLLOW_BYTES))
        end
    end

    -- Where ports stand in a Reach, and how many there may be.
    local REACH_BYTES, REACH_PORTS, WINDOWS = 40, 4, 64

    local function is_gone(tvb)
        return E.is_zero(tvb, 16, 8)
    end

    local function reach_error(tvb)
        if u8(tvb, 1) >= WINDOWS then
            return "a window that there is not"
        end
        if is_gone(tvb) then
            return nil
        end
        local count = u8(tvb, 2)
        if count < 1 or count > REACH_PORTS or tvb:len() < REACH_BYTES + count * C.PORT_BYTES or E.is_zero(tvb, 24, 16) then
            return "no box, or none that can be found"
        end
        for place = 0, count - 1 do
            local kind = u8(tvb, REACH_BYTES + place * C.PORT_BYTES)
            if kind < 1 or kind > #N.PORT_KINDS then
                return "a kind of port that there is not"
            end
        end
        local sum = tvb(8, 8):uint64() + tvb(16, 8):uint64()
        return sum < tvb(8, 8):uint64() and "a window beyond the last address" or nil
    end

    local function show_ports(tvb, tree)
        for place = 0, (is_gone(tvb) and 0 or u8(tvb, 2)) - 1 do
            E.port(tvb, REACH_BYTES + place * C.PORT_BYTES, tree)
        end
    end

    -- By code: name, bytes, fields, what is refused, and what else is shown.
    local CONTROL = {
        {
            "Attach", 8 + C.NAME_BYTES,
            { { "control.stream", 2, 2 }, { "control.max_payload", 4, 2 }, { "control.max_read", 6, 2 } },
            function(tvb)
                return u16(tvb, 2) == 0 and "stream 0" or nil
            end,
            function(tvb, tree)
                return E.add_text(tree, "name", tvb, 8, C.NAME_BYTES) and not E.is_zero(tvb, 8, 1)
                    or refuse(tree, "a name that is none")
            end,
        },
        {
            "Attached", 8, { { "control.status", 1, 1 }, { "control.stream", 2, 2 } },
            function(tvb)
                return not N.ATTACH_STATUSES[u8(tvb, 1)] and "a status that there is not" or nil
            end,
            function(tvb, tree)
                tree:add(f["control.port"], tvb(4, 2), E.id_of(tvb, 4))
            end,
        },
        { "Detach", 4 },
        { "Detached", 4 },
        { "HotReset", 4 },
        { "HotResetDone", 4 },
        {
            "ReadAhead", RULE_BYTES,
            {
                { "ahead.rule", 1, 1 }, { "ahead.generation", 2, 2 }, { "ahead.bar", 4, 1 }, { "ahead.follows", 5, 1 },
                { "ahead.entry_bytes", 6, 2 }, { "ahead.doorbell", 8, 4 }, { "ahead.mask", 12, 4 },
                { "ahead.address", 16, 8 }, { "ahead.entries", 24, 4 },
            },
            rule_error, show_rule,
        },
        {
            "Withdraw", 4, { { "ahead.rule", 1, 1 } },
            function(tvb)
                return u8(tvb, 1) >= C.RULES and "a rule that there is not" or nil
            end,
        },
        {
            "Member", 4, { { "group", 2, 2 } },
            function(tvb)
                return not is_group(tvb, 2) and "a group that there is not" or nil
            end,
        },
        { "Recall", 4, { { "control.window", 2, 2 } } },
        { "Keep", 4 },
        { "Domain", 4, { { "control.domain", 2, 2 } } },
        {
            "Reach", REACH_BYTES,
            {
                { "reach.window", 1, 1 }, { "reach.ports", 2, 1 }, { "reach.address", 8, 8 }, { "reach.bytes", 16, 8 },
                { "node", 24, 16 },
            },
            reach_error, show_ports,
        },
        {
            "Reached", 4, { { "reach.all", 1, 1 } },
            function(tvb)
                return u8(tvb, 1) > 1 and "a state that there is not" or nil
            end,
        },
        {
            "Admit", 32,
            { { "control.domain", 2, 2 }, { "control.epoch", 4, 4 }, { "control.stream", 8, 2 }, { "node", 16, 16 } },
            function(tvb)
                return (u32(tvb, 4) == 0 or u16(tvb, 8) == 0 or E.is_zero(tvb, 16, 16)) and "epoch, stream or node 0" or nil
            end,
            function(tvb, tree)
                tree:add(f["control.function"], tvb(10, 2), E.id_of(tvb, 10))
            end,
        },
        {
            "Join", 32,
            { { "control.stream", 2, 2 }, { "control.epoch", 4, 4 }, { "control.of_stream", 8, 2 }, { "node", 16, 16 } },
            function(tvb)
                local is_none = u16(tvb, 2) == 0 or u32(tvb, 4) == 0 or u16(tvb, 8) == 0 or E.is_zero(tvb, 16, 16)
                return is_none and "epoch, stream or node 0" or nil
            end,
        },
    }

    local function control(tvb, root, range)
        local tree = root:add(f.control, range)
        if not tvb then
            refuse(tree, "no control message")
            return "control?"
        end
        tree:add(f["control.code"], tvb(0, 1))
        local form = CONTROL[u8(tvb, 0)]
        if not form or tvb:len() < form[2] then
            refuse(tree, form and "a short " .. form[1] or "a code that there is not")
            return "control?"
        end
        tree:append_text(": " .. form[1])
        add(tree, tvb, form[3] or {})
        local wrong = form[4] and form[4](tvb)
        if wrong then
            refuse(tree, wrong)
        elseif form[5] then
            form[5](tvb, tree)
        end
        return form[1]
    end

    local function piece(tvb, root, range)
        local tree = root:add(f.ahead, range)
        local bytes = tvb and tvb:len() - C.PIECE_BYTES or 0
        local is_good = bytes >= 1 and bytes <= C.MAX_PIECE_BYTES and u8(tvb, 0) < C.RULES and N.PIECE_KINDS[u8(tvb, 1)]
            and not (u32(tvb, 8) == 0xFFFFFFFF and u32(tvb, 12) + bytes >= 0x100000000)
        if not is_good then
            refuse(tree, "no piece")
            return "piece?"
        end
        add(tree, tvb, {
            { "ahead.rule", 0, 1 }, { "ahead.kind", 1, 1 }, { "ahead.generation", 2, 2 }, { "ahead.index", 4, 2 },
            { "ahead.address", 8, 8 }, { "ahead.data", C.PIECE_BYTES, bytes },
        })
        return N.PIECE_KINDS[u8(tvb, 1)] .. " ahead"
    end

    -- What a whole record carries.
    local function payload(kind, tvb, tree, place, range)
        if kind == 1 and tvb then
            return E.tlp(tvb, tree, place, range)
        elseif kind == 1 then
            refuse(tree, "shorter than a TLP header")
            return "TLP?"
        elseif kind == 2 then
            return control(tvb, tree, range)
        elseif kind == 4 then
            return piece(tvb, tree, range)
        end
        return E.segment(tvb, tree, range)
    end

    -- Parts of a record between FIRST and LAST around `sequence`, as one; nil while some are missing. No record has more
    -- parts than it has words.
    local MOST_PARTS = C.MAX_RECORD_BYTES / 4 + 1
    local function join(parts, sequence)
        local first, count = sequence, 1
        while not parts[first].is_first do
            first = (first - 1) % 65536
            count = count + 1
            if not parts[first] or count > MOST_PARTS then
                return nil
            end
        end
        local last = sequence
        while not parts[last].is_last do
            last = (last + 1) % 65536
            count = count + 1
            if not parts[last] or count > MOST_PARTS then
                return nil
            end
        end
        local whole, kind = ByteArray.new(), parts[first].kind
        for step = 0, count - 1 do
            local at = (first + step) % 65536
            whole:append(parts[at].bytes)
            parts[at] = nil
        end
        return { bytes = whole, parts = count, kind = kind }
    end

    -- One part of a record; a whole record once its last part is there.
    local function split(record, tvb, tree, place)
        local memo = place.memo
        memo.joined = memo.joined or {}
        tree:add(f["record.part"], tvb(record.at + C.RECORD_HEADER_BYTES, record.length))
        if memo.is_new and not memo.is_done then
            local streams = E.way_of(place.src_epoch).parts
            streams[record.stream] = streams[record.stream] or {}
            local bytes = tvb(record.at + C.RECORD_HEADER_BYTES, record.length):bytes()
            streams[record.stream][record.sequence] = {
                bytes = bytes, is_first = record.is_first, is_last = record.is_last, kind = record.kind,
            }
            memo.joined[place.record] = join(streams[record.stream], record.sequence)
        end
        local joined = memo.joined[place.record]
        if not joined then
            return "part of a " .. N.RECORD_KINDS[record.kind]
        elseif joined.bytes:len() == 0 or joined.bytes:len() > C.MAX_RECORD_BYTES then
            refuse(tree, "a record that is empty or too long")
            return "record?"
        end
        tree:add(f["record.parts"], joined.parts):set_generated()
        local whole = joined.bytes:tvb("Record")
        return payload(joined.kind, whole, tree, place, whole())
    end

    -- Where the records of a body are; or nil and what is wrong.
    local function find(tvb)
        local found, at = {}, 0
        while at < tvb:len() do
            if at + C.RECORD_HEADER_BYTES > tvb:len() then
                return nil, "a record that is cut off"
            end
            local length, kind, flags = u16(tvb, at), u8(tvb, at + 2), u8(tvb, at + 3)
            local bytes = C.RECORD_HEADER_BYTES + math.floor((length + 3) / 4) * 4
            if not N.RECORD_KINDS[kind] then
                return nil, "a record kind that there is not"
            elseif flags > 3 then
                return nil, "flags of a record that there are not"
            elseif length > C.MAX_RECORD_BYTES then
                return nil, "a record that is too long"
            elseif at + bytes > tvb:len() then
                return nil, "a record that is cut off"
            end
            found[#found + 1] = {
                at = at, length = length, bytes = bytes, kind = kind, is_first = flags % 2 == 1, is_last = flags >= 2,
                stream = u16(tvb, at + 4), sequence = u16(tvb, at + 6),
            }
            at = at + bytes
        end
        return found
    end

    -- The body of a Data frame; adds to `info` what it carries.
    function E.records(tvb, root, place, info)
        if not tvb then
            return
        end
        local found, wrong = find(tvb)
        if not found then
            return refuse(root, wrong)
        end
        for number, record in ipairs(found) do
            local tree = root:add(f.record, tvb(record.at, record.bytes))
            local header = tvb(record.at, C.RECORD_HEADER_BYTES)
            tree:add(f["record.length"], header(0, 2))
            tree:add(f["record.kind"], header(2, 1))
            tree:add(f["record.first"], header(3, 1))
            tree:add(f["record.last"], header(3, 1))
            tree:add(f["record.stream"], header(4, 2))
            tree:add(f["record.sequence"], header(6, 2))
            place.record, place.stream = number, record.stream
            local told
            if record.is_first and record.is_last then
                local range = tvb(record.at + C.RECORD_HEADER_BYTES, record.length)
                told = payload(record.kind, record.length > 0 and range:tvb() or nil, tree, place, range)
            elseif record.length > 0 then
                told = split(record, tvb, tree, place)
            end
            tree:append_text(string.format(": stream %d, %s", record.stream, told or "an empty part"))
            info[#info + 1] = told
        end
    end
end
