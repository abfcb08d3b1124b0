-- TLPs (docs/wire.md, section 7), and Requests joined with their Completions.
return function(E)
    local N, f, e = E.N, E.f, E.e
    local u8, u32, id_of, refuse = E.u8, E.u32, E.id_of, E.refuse

    local TLPS = {
        [0x00] = "MRd", [0x20] = "MRd", [0x40] = "MWr", [0x60] = "MWr",
        [0x04] = "CfgRd0", [0x44] = "CfgWr0", [0x05] = "CfgRd1", [0x45] = "CfgWr1", [0x0A] = "Cpl", [0x4A] = "CplD",
        [0x4C] = "FetchAdd", [0x6C] = "FetchAdd", [0x4D] = "Swap", [0x6D] = "Swap", [0x4E] = "CAS", [0x6E] = "CAS",
    }
    for routing = 0, 5 do
        TLPS[0x30 + routing], TLPS[0x70 + routing] = "Msg", "MsgD"
    end
    local CLASSES = {
        MRd = "memory", MWr = "memory", FetchAdd = "atomic", Swap = "atomic", CAS = "atomic", Cpl = "completion",
        CplD = "completion", CfgRd0 = "config", CfgWr0 = "config", CfgRd1 = "config", CfgWr1 = "config",
        Msg = "message", MsgD = "message",
    }
    local ENDS = { [0xF] = true, [0xE] = true, [0xC] = true, [0x8] = true }
    local STARTS = { [0xF] = true, [0x7] = true, [0x3] = true, [0x1] = true }

    -- A TLP's header, and the rule of wire.md, section 7, that it breaks, if one.
    local function read_tlp(tvb)
        local bytes = tvb:len()
        if bytes < 12 then
            return nil, "shorter than a TLP header"
        end
        local fmt_type = u8(tvb, 0)
        local t = { fmt_type = fmt_type, type = TLPS[fmt_type] }
        if not t.type then
            return t, math.floor(fmt_type / 32) == 4 and "a TLP prefix" or "Fmt and Type are not carried"
        end
        t.class = CLASSES[t.type]
        local second, third = tvb(1, 1), tvb(2, 1)
        t.head = fmt_type % 64 >= 32 and 16 or 12
        local has_data = fmt_type >= 0x40
        local length = tvb(2, 2):bitfield(6, 10)
        t.length = length == 0 and 1024 or length
        t.data = has_data and t.length * 4 or 0
        t.tag = second:bitfield(0, 1) * 512 + second:bitfield(4, 1) * 256 + u8(tvb, t.class == "completion" and 10 or 6)
        t.tc, t.attr = second:bitfield(1, 3), second:bitfield(5, 1) * 4 + third:bitfield(2, 2)
        t.poisoned = has_data and third:bitfield(1, 1) == 1
        if third:bitfield(0, 1) == 1 then
            return t, "a digest (TD)"
        elseif bytes ~= t.head + t.data then
            return t, "Length does not fit the record"
        end
        local th, at = second:bitfield(7, 1), third:bitfield(4, 2)
        local first_be, last_be = tvb(7, 1):bitfield(4, 4), tvb(7, 1):bitfield(0, 4)
        if t.class == "memory" or t.class == "atomic" then
            t.high, t.low = t.head == 16 and u32(tvb, 8) or 0, u32(tvb, t.head - 4)
            t.low = t.low - t.low % 4
            local operand = t.type == "CAS" and t.length / 2 or t.length
            if th ~= 0 or at ~= 0 then
                return t, "TH or AT is set"
            elseif t.head == 16 and t.high == 0 then
                return t, "an address below 4 GiB in 4 DW"
            elseif t.class == "atomic" and operand ~= 1 and operand ~= 2 and not (t.type == "CAS" and operand == 4) then
                return t, "Length of an AtomicOp"
            elseif t.class == "atomic" and t.low % (operand * 4) ~= 0 then
                return t, "an operand that is not aligned"
            elseif t.class == "memory" and t.low % 4096 + t.length * 4 > 4096 then
                return t, "a 4 KiB boundary is crossed"
            end
            if t.class == "memory" then
                t.first_be, t.last_be = first_be, last_be
                local is_good = ENDS[first_be] and STARTS[last_be]
                if t.length == 1 then
                    is_good = last_be == 0
                elseif t.length == 2 and t.low % 8 == 0 then
                    is_good = first_be ~= 0 and last_be ~= 0
                end
                return t, not is_good and "byte enables" or nil
            end
        elseif t.class == "config" then
            t.first_be, t.register = first_be, tvb(10, 2):bitfield(4, 10) * 4
            t.attr = 0
            if t.length ~= 1 then
                return t, "Length of a Configuration Request"
            elseif last_be ~= 0 then
                return t, "byte enables"
            elseif t.tc ~= 0 or third:bitfield(2, 2) ~= 0 or at ~= 0 then
                return t, "TC, Attr or AT is set"
            end
        elseif t.class == "completion" then
            local count = tvb(6, 2):bitfield(4, 12)
            t.status, t.byte_count = tvb(6, 1):bitfield(0, 3), count == 0 and 4096 or count
            t.lower_address = tvb(11, 1):bitfield(1, 7)
        else
            t.tag, t.routing, t.code = u8(tvb, 6), fmt_type % 8, u8(tvb, 7)
        end
        return t
    end

    -- Joins Requests with their Completions, by the peer's way, stream, Requester ID and Tag.
    local function pair(t, place)
        local is_request = t.type == "MRd" or t.class == "config" or t.class == "atomic"
        if is_request then
            local key = place.stream .. "/" .. t.requester .. "/" .. t.tag
            local request = { frame = place.frame, time = place.time, left = t.type == "MRd" and t.length or 0 }
            E.way_of(place.src_epoch).waiting[key] = request
            return { request = request }
        elseif t.class == "completion" then
            local waiting = E.way_of(place.dst_epoch).waiting
            local key = place.stream .. "/" .. t.requester .. "/" .. t.tag
            local request = waiting[key]
            if request then
                request.left = request.left - (t.type == "CplD" and t.length or 0)
                if t.status ~= 0 or request.left <= 0 then
                    request.completion = place.frame
                    waiting[key] = nil
                end
            end
            return { of = request, time = request and place.time - request.time, is_stray = not request }
        end
        return {}
    end

    function E.tlp(tvb, root, place, range)
        local tree = root:add(f.tlp, range or tvb())
        local t, wrong = read_tlp(tvb)
        if not t then
            refuse(tree, wrong)
            return "TLP?"
        end
        tree:add(f["tlp.fmt_type"], tvb(0, 1))
        if not t.type or (wrong and not t.class) then
            refuse(tree, wrong)
            return "TLP?"
        end
        tree:add(f["tlp.type"], tvb(0, 1), t.type)
        tree:add(f["tlp.tc"], tvb(1, 1), t.tc)
        tree:add(f["tlp.attr"], tvb(1, 2), t.attr)
        tree:add(f["tlp.ep"], tvb(2, 1))
        tree:add(f["tlp.length"], tvb(2, 2), t.length)
        if wrong then
            refuse(tree, wrong)
            return t.type .. "?"
        end
        local is_completion = t.class == "completion"
        t.requester = id_of(tvb, is_completion and 8 or 4)
        tree:add(f["tlp.requester"], tvb(is_completion and 8 or 4, 2), t.requester)
        tree:add(f["tlp.tag"], tvb(is_completion and 10 or 6, 1), t.tag)
        local about
        if t.low then
            tree:add(f["tlp.address"], tvb(8, t.head - 8), UInt64.new(t.low, t.high))
            about = string.format("%08x%08x, %d DW", t.high, t.low, t.length)
        elseif t.class == "config" then
            local target = id_of(tvb, 8)
            tree:add(f["tlp.target"], tvb(8, 2), target)
            tree:add(f["tlp.register"], tvb(10, 2), t.register)
            about = string.format("%s register %03x", target, t.register)
        elseif is_completion then
            tree:add(f["tlp.completer"], tvb(4, 2), id_of(tvb, 4))
            tree:add(f["tlp.status"], tvb(6, 1), t.status)
            tree:add(f["tlp.byte_count"], tvb(6, 2), t.byte_count)
            tree:add(f["tlp.lower_address"], tvb(11, 1), t.lower_address)
            about = string.format("tag %d %s", t.tag, N.COMPLETION_STATUSES[t.status])
            if t.status ~= 0 then
                tree:add_proto_expert_info(e.failed, "Request failed: " .. N.COMPLETION_STATUSES[t.status])
            end
        else
            tree:add(f["tlp.routing"], tvb(0, 1), t.routing)
            tree:add(f["tlp.code"], tvb(7, 1))
            tree:add(f["tlp.fields"], tvb(8, 8))
            about = string.format("code %02x", t.code)
        end
        if t.first_be then
            tree:add(f["tlp.first_be"], tvb(7, 1), t.first_be)
        end
        if t.last_be then
            tree:add(f["tlp.last_be"], tvb(7, 1), t.last_be)
        end
        if t.data > 0 then
            tree:add(f["tlp.data"], tvb(t.head, t.data))
        end
        if t.poisoned then
            tree:add_proto_expert_info(e.poisoned)
        end
        -- What came before is not paired again.
        local memo = place.memo
        memo.tlps = memo.tlps or {}
        if memo.is_new and not memo.is_done then
            memo.tlps[place.record] = pair(t, place)
        end
        local found = memo.tlps[place.record] or {}
        if found.of then
            tree:add(f["tlp.request_in"], found.of.frame):set_generated()
            local seconds = math.floor(found.time)
            local span = NSTime.new(seconds, math.floor((found.time - seconds) * 1e9 + 0.5))
            tree:add(f["tlp.time"], span):set_generated()
        elseif found.is_stray then
            tree:add_proto_expert_info(e.unasked)
        elseif found.request and found.request.completion then
            tree:add(f["tlp.completion_in"], found.request.completion):set_generated()
        elseif found.request and place.is_visited then
            tree:add_proto_expert_info(e.unanswered)
        end
        tree:append_text(": " .. t.type .. " " .. about)
        return t.type .. " " .. about
    end
end
