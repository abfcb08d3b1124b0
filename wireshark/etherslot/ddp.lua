-- DDP segments with RDMAP (docs/rnic.md, section 7): the payload of records of kind 3.
return function(E)
    local C, N, f = E.C, E.N, E.f
    local u8, u16, u32, add, refuse = E.u8, E.u16, E.u32, E.add, E.refuse

    -- The untagged queue of each opcode; 0 and 2 are tagged, the others that are not here are Sends, of queue 0.
    local QUEUES = { [1] = 1, [7] = 2, [10] = 1, [11] = 3, [12] = 4, [13] = 4 }
    local WRITE, READ_REQUEST, READ_RESPONSE, TERMINATE, IMMEDIATE, ATOMIC, ANSWER, SYNCHRONISE, ACKNOWLEDGE =
        0, 1, 2, 7, 8, 10, 11, 12, 13

    -- What is behind the header of a message that has something there: bytes and fields.
    local BODIES = {
        [READ_REQUEST] = {
            28,
            {
                { "rdmap.sink_stag", 0, 4 }, { "rdmap.sink_to", 4, 8 }, { "rdmap.length", 12, 4 },
                { "rdmap.source_stag", 16, 4 }, { "rdmap.source_to", 20, 8 },
            },
        },
        [ATOMIC] = {
            52,
            {
                { "rdmap.code", 3, 1 }, { "rdmap.identifier", 4, 4 }, { "rdmap.stag", 8, 4 }, { "rdmap.to", 12, 8 },
                { "rdmap.operand", 20, 8 }, { "rdmap.mask", 28, 8 }, { "rdmap.compare", 36, 8 },
                { "rdmap.compare_mask", 44, 8 },
            },
        },
        [ANSWER] = { 12, { { "rdmap.identifier", 0, 4 }, { "rdmap.value", 4, 8 } } },
        [IMMEDIATE] = { 8, { { "rdmap.immediate", 4, 4 } } },
        [IMMEDIATE + 1] = { 8, { { "rdmap.immediate", 4, 4 } } },
    }

    -- Layer, type and code of a Terminate, and what it repeats of the wrong segment.
    local function terminate(tvb, tree)
        if tvb:len() < 4 then
            return
        end
        add(tree, tvb, { { "rdmap.layer", 0, 1 }, { "rdmap.type", 0, 1 }, { "rdmap.error", 1, 1 } })
        local first, code, control, at = u8(tvb, 0), u8(tvb, 1), u8(tvb, 2), 4
        local cause = string.format("%d.%d.%d", math.floor(first / 16), first % 16, code)
        tree:append_text(", " .. (N.CAUSES[cause] or "cause " .. cause))
        tree:add_proto_expert_info(E.e.terminate, "Terminate: " .. (N.CAUSES[cause] or cause))
        if control >= 0x80 and tvb:len() >= at + 2 then
            tree:add(f["rdmap.wrong_bytes"], tvb(at, 2))
            at = at + 2
        end
        if math.floor(control / 0x40) % 2 == 1 and tvb:len() > at then
            local bytes = u8(tvb, at) >= 0x80 and 14 or 18
            if tvb:len() >= at + bytes then
                tree:add(f["rdmap.wrong_header"], tvb(at, bytes))
            end
        end
    end

    local function acknowledge(tvb, tree)
        local verdict, more = u32(tvb, 4), u32(tvb, 16)
        tree:add(f["rdmap.verdict"], tvb(4, 4))
        if verdict == 1 then
            tree:add(f["rdmap.wait"], tvb(16, 4))
        elseif verdict == 2 and more <= 0xFFFF then
            tree:add(f["rdmap.absent"], tvb(18, 2))
        end
        tree:append_text(", " .. (N.VERDICTS[verdict] or "?"))
    end

    -- What is wrong with a header; nil if nothing is.
    local function wrong_with(tvb, is_tagged, opcode)
        if u8(tvb, 2) % 4 ~= 1 then
            return "a version of DDP that there is not"
        elseif not is_tagged and u32(tvb, 8) > 4 then
            return "a queue that there is not"
        elseif math.floor(u8(tvb, 3) / 64) ~= 1 then
            return "a version of RDMAP that there is not"
        elseif is_tagged ~= (opcode == WRITE or opcode == READ_RESPONSE) then
            return "an opcode of the other buffer model"
        elseif not is_tagged and u32(tvb, 8) ~= (QUEUES[opcode] or 0) then
            return "an opcode of another queue"
        end
    end

    -- A segment; what is told of it.
    function E.segment(tvb, root, range)
        local tree = root:add(f.ddp, range)
        local is_tagged = tvb and tvb:len() > 2 and u8(tvb, 2) >= 0x80
        local header = is_tagged and C.DDP_TAGGED_BYTES or C.DDP_UNTAGGED_BYTES
        if not tvb or tvb:len() < header then
            refuse(tree, "shorter than its header")
            return "DDP?"
        end
        local opcode = u8(tvb, 3) % 16
        add(tree, tvb, { { "ddp.qp", 0, 2 }, { "ddp.tagged", 2, 1 }, { "ddp.last", 2, 1 }, { "rdmap.opcode", 3, 1 } })
        local wrong = wrong_with(tvb, is_tagged, opcode)
        if wrong then
            refuse(tree, wrong)
            return "DDP?"
        end
        if is_tagged then
            add(tree, tvb, { { "ddp.stag", 4, 4 }, { "ddp.to", 8, 8 } })
        else
            add(tree, tvb, { { "ddp.ulp", 4, 4 }, { "ddp.qn", 8, 4 }, { "ddp.msn", 12, 4 }, { "ddp.mo", 16, 4 } })
        end
        tree:append_text(": " .. N.RDMAP[opcode] .. " for QP " .. u16(tvb, 0))
        local bytes = tvb:len() - header
        local body = E.part(tvb, header, bytes)
        if bytes > 0 then
            tree:add(f["ddp.data"], tvb(header, bytes))
        end
        local form = BODIES[opcode]
        if form and bytes == form[1] then
            add(tree, body, form[2])
        elseif opcode == TERMINATE and body then
            terminate(body, tree)
        elseif opcode == ACKNOWLEDGE then
            acknowledge(tvb, tree)
        elseif opcode == SYNCHRONISE then
            tree:append_text(u32(tvb, 4) % 2 == 1 and ", restart" or ", question")
        end
        return N.RDMAP[opcode]
    end
end
