-- Readers of bytes that are there, and what all parts of the dissector show alike.
return function(E)
    local C, f, e = E.C, E.f, E.e

    function E.u8(tvb, at)
        return tvb(at, 1):uint()
    end
    function E.u16(tvb, at)
        return tvb(at, 2):uint()
    end
    function E.u32(tvb, at)
        return tvb(at, 4):uint()
    end

    -- Adds fields as they stand: rows of name, offset and length.
    function E.add(tree, tvb, rows)
        for _, row in ipairs(rows) do
            tree:add(f[row[1]], tvb(row[2], row[3]))
        end
    end

    function E.refuse(tree, why)
        tree:add_proto_expert_info(e.refused, "Refused: " .. why)
        return nil
    end

    -- A part of a Tvb as one of its own; nil if it has no bytes.
    function E.part(tvb, at, length)
        return length > 0 and tvb(at, length):tvb() or nil
    end

    local UTF8 = {
        "[\194-\223][\128-\191]", "\224[\160-\191][\128-\191]", "\237[\128-\159][\128-\191]",
        "[\225-\236\238\239][\128-\191][\128-\191]", "\240[\144-\191][\128-\191][\128-\191]",
        "[\241-\243][\128-\191][\128-\191][\128-\191]", "\244[\128-\143][\128-\191][\128-\191]",
    }

    -- The text of a field that is filled up with zeros; nil if it is none that wire.md allows.
    local function text_of(tvb, at, bytes)
        local raw = tvb(at, bytes):raw()
        local text = raw:match("^[^\0]*")
        local plain = text
        for _, pattern in ipairs(UTF8) do
            plain = plain:gsub(pattern, "?")
        end
        local is_good = not plain:find("[\1-\31\127-\255]") and not raw:sub(#text + 1):find("[^\0]")
        return is_good and text or nil
    end

    function E.add_text(tree, name, tvb, at, bytes)
        local text = text_of(tvb, at, bytes)
        if text then
            tree:add(f[name], tvb(at, bytes), text)
        end
        return text
    end

    function E.is_zero(tvb, at, bytes)
        return not tvb(at, bytes):raw():find("[^\0]")
    end

    function E.id_of(tvb, at)
        local id = E.u16(tvb, at)
        return string.format("%02x:%02x.%d", math.floor(id / 256), math.floor(id / 8) % 32, id % 8)
    end

    -- CRC-32C, by a table.
    local bxor = (bit32 or bit or {}).bxor or load("return function(a, b) return a ~ b end")()
    local crc_table
    local function crc32c(bytes)
        if not crc_table then
            crc_table = {}
            for value = 0, 255 do
                local crc = value
                for _ = 1, 8 do
                    crc = crc % 2 == 1 and bxor(math.floor(crc / 2), 0x82F63B78) % 0x100000000 or math.floor(crc / 2)
                end
                crc_table[value] = crc
            end
        end
        local crc = 0xFFFFFFFF
        for at = 1, #bytes do
            local index = bxor(crc % 256, bytes:byte(at)) % 256
            crc = bxor(math.floor(crc / 256), crc_table[index]) % 0x100000000
        end
        return 0xFFFFFFFF - crc
    end

    -- Shows the check at `at`; false if it is wrong and known to be so. It is computed once, if there is a memo of the frame.
    function E.check(tree, tvb, at, covered, memo)
        local status
        if E.prefs.check then
            status = memo.check or (crc32c(tvb(0, covered):raw()) == E.u32(tvb, at) and 1 or 0)
            memo.check = status
        end
        tree:add(f.check, tvb(at, C.CHECK_BYTES))
        if status then
            tree:add(f["check.status"], tvb(at, C.CHECK_BYTES), status):set_generated()
        end
        if status == 0 then
            tree:add_proto_expert_info(e.check)
        end
        return status ~= 0
    end
end
