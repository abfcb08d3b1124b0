-- Discovery and assignment (docs/wire.md, section 12).
return function(E)
    local C, N, f = E.C, E.N, E.f
    local u8, u16, u32, add, refuse = E.u8, E.u16, E.u32, E.add, E.refuse

    -- The bytes of an address of each kind.
    local ADDRESS_BYTES = { 6, 4, 16, 4 }
    local TAG_BYTES = 32
    local HEARTBEAT_BYTES = 24 + C.NAME_BYTES

    local function port(tvb, at, root)
        local tree = root:add(f.port, tvb(at, C.PORT_BYTES))
        local bytes = ADDRESS_BYTES[u8(tvb, at)]
        add(tree, tvb, { { "port.kind", at, 1 }, { "port.port", at + 2, 2 } })
        if not bytes then
            return refuse(tree, "a kind of port that there is not")
        end
        tree:add(f["port.address"], tvb(at + 4, bytes))
        return true
    end

    E.port = port

    local function device(tvb, at, root)
        local tree = root:add(f.device, tvb(at, C.DEVICE_BYTES))
        local name = E.add_text(tree, "name", tvb, at, C.NAME_BYTES)
        local serial = E.add_text(tree, "device.serial", tvb, at + 32, C.SERIAL_BYTES)
        add(tree, tvb, {
            { "device.vendor", at + 56, 2 }, { "device.device", at + 58, 2 }, { "device.class", at + 60, 3 },
            { "device.state", at + 63, 1 }, { "device.size", at + 64, 8 }, { "device.epoch", at + 72, 8 },
            { "device.owner", at + 80, 16 }, { "device.assigned", at + 96, 1 }, { "device.has_owners", at + 97, 1 },
            { "group", at + 98, 2 },
            { "device.for", at + 104, 16 },
        })
        local assigned = u8(tvb, at + 96)
        local is_good = name and name ~= "" and serial and N.DEVICE_STATES[u8(tvb, at + 63)] and N.ASSIGNED[assigned]
            and u16(tvb, at + 98) <= C.MAX_GROUP and not (assigned == 1 and E.is_zero(tvb, at + 104, 16))
        if not is_good then
            return refuse(tree, "a device with a value that there is not")
        end
        tree:append_text(": " .. name)
        return true
    end

    local function heartbeat(tvb, tree)
        if tvb:len() < HEARTBEAT_BYTES then
            return refuse(tree, "a short Heartbeat")
        end
        add(tree, tvb, {
            { "heartbeat.role", 0, 1 }, { "heartbeat.link", 1, 1 }, { "group", 2, 2 }, { "heartbeat.interval", 4, 2 },
            { "heartbeat.first", 6, 2 }, { "heartbeat.all", 8, 2 }, { "heartbeat.devices", 10, 1 },
            { "heartbeat.ports", 11, 1 }, { "heartbeat.generation", 12, 4 }, { "heartbeat.sent", 16, 4 },
        })
        local name = E.add_text(tree, "name", tvb, 24, C.NAME_BYTES)
        local role, devices, ports = N.ROLES[u8(tvb, 0)], u8(tvb, 10), u8(tvb, 11)
        local is_good = role and name and name ~= "" and u8(tvb, 1) < C.MAX_LINKS and u16(tvb, 2) <= C.MAX_GROUP
            and ports <= C.MAX_LINKS and u16(tvb, 8) <= C.MAX_DEVICES and u16(tvb, 6) + devices <= u16(tvb, 8)
        if not is_good then
            return refuse(tree, "a Heartbeat with a value that there is not")
        end
        local at = HEARTBEAT_BYTES
        if tvb:len() < at + ports * C.PORT_BYTES + devices * C.DEVICE_BYTES then
            return refuse(tree, "shorter than its ports and devices")
        end
        for _ = 1, ports do
            port(tvb, at, tree)
            at = at + C.PORT_BYTES
        end
        for _ = 1, devices do
            device(tvb, at, tree)
            at = at + C.DEVICE_BYTES
        end
        return string.format("%s %s, %d of %d devices", role, name, devices, u16(tvb, 8))
    end

    local function order(tvb, tree)
        if tvb:len() < C.ORDER_BYTES then
            return refuse(tree, "a short Order")
        end
        add(tree, tvb, {
            { "order.change", 0, 1 }, { "order.dry_run", 1, 1 }, { "order.force", 1, 1 }, { "order.number", 8, 8 },
            { "order.box", 16, 16 }, { "order.life", 80, 8 },
        })
        local name = E.add_text(tree, "name", tvb, 48, C.NAME_BYTES)
        local change, group = u8(tvb, 0), u16(tvb, 2)
        if change == 1 then
            tree:add(f["order.host"], tvb(32, 16))
        elseif change == 2 then
            tree:add(f.group, tvb(2, 2))
        end
        local is_good = N.CHANGES[change] and u8(tvb, 1) < 4 and name and name ~= ""
            and not (change == 1 and E.is_zero(tvb, 32, 16))
            and not (change == 2 and (group == 0 or group > C.MAX_GROUP))
        if not is_good then
            return refuse(tree, "an Order with a value that there is not")
        end
        return string.format("%s %s", name, N.CHANGES[change])
    end

    local function outcome(tvb, tree)
        if tvb:len() < C.OUTCOME_BYTES then
            return refuse(tree, "a short Outcome")
        end
        add(tree, tvb, {
            { "outcome.progress", 0, 1 }, { "outcome.reason", 1, 1 }, { "outcome.step", 2, 1 },
            { "outcome.elapsed", 4, 4 }, { "order.number", 8, 8 }, { "outcome.asker_life", 16, 8 },
            { "outcome.epoch", 24, 8 }, { "outcome.asker", 32, 16 }, { "outcome.from", 48, 16 }, { "outcome.to", 64, 16 },
        })
        local progress = N.PROGRESS[u8(tvb, 0)]
        if not (progress and N.REASONS[u8(tvb, 1)] and N.ORDER_STEPS[u8(tvb, 2)]) then
            return refuse(tree, "an Outcome with a value that there is not")
        end
        return progress
    end

    -- A frame with one heartbeat, in a frame of a rendezvous.
    local function relayed(tvb, tree)
        local inside = tvb:len() - C.PORT_BYTES
        if inside <= 0 or not port(tvb, 0, tree) then
            return refuse(tree, "a Relayed without a port or a frame")
        end
        local within = tvb(C.PORT_BYTES, inside):tvb()
        if u8(within, 0) ~= C.VERSION * 16 + C.DISCOVERY_KIND or inside < 2 or u8(within, 1) ~= 1 then
            return refuse(tree, "no Heartbeat inside")
        end
        return E.discovery(within, tree, {}, true)
    end

    local MESSAGES = { heartbeat, order, outcome, relayed }

    -- A frame of discovery, its first byte known; the text that tells of it. `is_inner`: it is in another one.
    function E.discovery(tvb, tree, memo, is_inner)
        if tvb:len() < C.DISCOVERY_HEADER_BYTES then
            return refuse(tree, "shorter than its header")
        end
        add(tree, tvb, {
            { "discovery.message", 1, 1 }, { "body_length", 2, 2 }, { "flags", 4, 1 }, { "discovery.life", 8, 8 },
            { "discovery.sequence", 16, 8 }, { "node", 24, 16 },
        })
        local message, length = u8(tvb, 1), u16(tvb, 2)
        local last = C.DISCOVERY_HEADER_BYTES + length
        if not N.DISCOVERY[message] then
            return refuse(tree, "a message that there is not")
        elseif u8(tvb, 4) ~= 0 then
            return refuse(tree, "flags that there are not")
        elseif tvb:len() < last + C.CHECK_BYTES then
            return refuse(tree, "shorter than it says")
        end
        local is_intact = E.check(tree, tvb, last, last, memo)
        if not is_inner and tvb:len() >= last + C.CHECK_BYTES + TAG_BYTES then
            tree:add(f.tag, tvb(last + C.CHECK_BYTES, TAG_BYTES))
        end
        local told
        if is_intact and length > 0 then
            told = MESSAGES[message](tvb(C.DISCOVERY_HEADER_BYTES, length):tvb(), tree)
        elseif is_intact then
            refuse(tree, "no body")
        end
        return told and N.DISCOVERY[message] .. " " .. told or N.DISCOVERY[message]
    end
end
