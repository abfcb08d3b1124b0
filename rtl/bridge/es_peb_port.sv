// A port of the bridge's switch: its configuration space (PCI Express Base Specification 6.0, 7.5.1.3), and what that says about what passes.
//
// Header of Type 1, Power Management (0x40), PCI Express (0x80). A register reads in the clock in which it is asked for, and is written at its end.
module es_peb_port #(
    parameter bit DOWNSTREAM = 0,  // 1: a slot is below, with a Link that can be disabled
    parameter logic [4:0] NUMBER = 5'd0  // of a downstream port
) (
    input wire clk,
    input wire rst,

    input  wire  [ 9:0] register,  // DW
    output logic [31:0] read,      // byte 0 of the register in bits 7:0
    input  wire  [ 3:0] enables,
    input  wire  [31:0] data,
    input  wire         write,

    output logic [ 7:0] secondary,
    output logic [ 7:0] subordinate,
    output logic        master,       // passes Memory Requests upwards
    output logic        up,           // nothing holds what is below in reset
    input  wire  [63:0] address,
    output logic        claims        // passes Memory Requests for the `address` of the clock before downwards
);
  logic [31:0] command, buses, memory, prefetch, base_upper, limit_upper, control, power, device_control, link_control, slot_control;
  logic [7:0] cache_line;
  logic asleep, open;

  always_comb begin
    case (register)
      10'h000: read = {DOWNSTREAM ? 16'h0002 : 16'h0001, 16'hE75E};
      10'h001: read = command | 32'h0010_0000;
      10'h002: read = 32'h0604_0000;
      10'h003: read = {8'd0, 8'h01, 8'd0, cache_line};
      10'h006: read = buses;
      10'h008: read = memory;
      10'h009: read = prefetch | 32'h0001_0001;
      10'h00A: read = base_upper;
      10'h00B: read = limit_upper;
      10'h00D: read = 32'h0000_0040;
      10'h00F: read = control;
      10'h010: read = 32'h0003_8001;
      10'h011: read = power | 32'h0000_0008;
      10'h020: read = DOWNSTREAM ? 32'h0162_0010 : 32'h0052_0010;
      10'h021: read = 32'h0000_8022;
      10'h022: read = device_control;
      10'h023: read = (DOWNSTREAM ? 32'h0050_0043 : 32'h0040_0043) | {3'd0, NUMBER, 24'd0};
      10'h024: read = link_control | (DOWNSTREAM ? {2'd0, up, 1'b1, 2'd0, up ? 10'h043 : 10'd0, 16'd0} : 32'h1043_0000);
      10'h025: read = DOWNSTREAM ? 32'h0004_0060 | {8'd0, NUMBER, 19'd0} : 32'd0;
      10'h026: read = slot_control | (DOWNSTREAM ? 32'h0040_0000 : 32'd0);
      10'h029: read = 32'h0001_0000;
      10'h02B: read = 32'h0000_000E;
      10'h02C: read = 32'h0000_0003;
      default: read = 32'd0;
    endcase
  end

  // Bits that a write changes; then what they become.
  function automatic logic [31:0] merged(input logic [31:0] old, input logic [31:0] writable, input logic [31:0] value,
                                         input logic [3:0] bytes);
    logic [31:0] mask;
    mask = writable & {{8{bytes[3]}}, {8{bytes[2]}}, {8{bytes[1]}}, {8{bytes[0]}}};
    return (old & ~mask) | (value & mask);
  endfunction

  always_ff @(posedge clk) begin
    if (write) begin
      case (register)
        10'h001: command <= merged(command, 32'h0000_0546, data, enables);
        10'h003: if (enables[0]) cache_line <= data[7:0];
        10'h006: buses <= merged(buses, 32'h00FF_FFFF, data, enables);
        10'h008: memory <= merged(memory, 32'hFFF0_FFF0, data, enables);
        10'h009: prefetch <= merged(prefetch, 32'hFFF0_FFF0, data, enables);
        10'h00A: base_upper <= merged(base_upper, 32'hFFFF_FFFF, data, enables);
        10'h00B: limit_upper <= merged(limit_upper, 32'hFFFF_FFFF, data, enables);
        10'h00F: control <= merged(control, 32'h0043_00FF, data, enables);
        10'h011: power <= merged(power, 32'h0000_0003, data, enables);
        10'h022: device_control <= merged(device_control, 32'h0000_01EF, data, enables);
        10'h024: link_control <= merged(link_control, DOWNSTREAM ? 32'h0000_00D3 : 32'h0000_00C3, data, enables);
        10'h026: slot_control <= merged(slot_control, DOWNSTREAM ? 32'h0000_1028 : 32'd0, data, enables);
        default: ;
      endcase
    end
    if (rst) begin
      command <= '0;
      cache_line <= '0;
      buses <= '0;
      // Both windows are closed: base above limit.
      memory <= 32'h0000_FFF0;
      prefetch <= 32'h0000_FFF0;
      base_upper <= '0;
      limit_upper <= '0;
      control <= '0;
      power <= '0;
      device_control <= 32'h0000_0100;
      link_control <= '0;
      slot_control <= '0;
    end
  end

  assign secondary = buses[15:8];
  assign subordinate = buses[23:16];
  assign asleep = power[1:0] != 2'b00;
  assign master = command[2] && !asleep;
  assign open = command[1] && !asleep;
  assign up = !control[22] && !(DOWNSTREAM && link_control[4]);

  // Bits 15:4 of a register are address bits 31:20 (7.5.1.3.6), and of the prefetchable window 63:32 stand beside (7.5.1.3.9, 7.5.1.3.10).
  logic low, high;
  assign low  = address[63:32] == '0 && address[31:20] >= memory[15:4] && address[31:20] <= memory[31:20];
  assign high = address[63:20] >= {base_upper, prefetch[15:4]} && address[63:20] <= {limit_upper, prefetch[31:20]};
  always_ff @(posedge clk) claims <= open && (low || high);
endmodule
