// Host Interface: RNIC registers, QP registers and the address decoder of docs/rnic.md, behind AXI-Lite of 64 bits; states of the QPs.
//
// The three BARs are one address space: bits 24:23 are 0 for BAR 0, 1 for BAR 2, 2 for BAR 4. A write takes effect in the clock after it was taken.
// Tables are written through here and read by the modules that keep them; they read back as 0, but for what section 3 calls ro.
module es_rnic_host #(
    parameter int QPS   = 16,
    parameter int CQS   = 16,
    parameter int STAGS = 256,
    parameter int PBLS  = 4096,
    parameter int READS = 4
) (
    input wire clk,
    input wire rst,

    input  wire  [24:0] s_axil_awaddr,
    input  wire         s_axil_awvalid,
    output logic        s_axil_awready,
    input  wire  [63:0] s_axil_wdata,
    input  wire  [ 7:0] s_axil_wstrb,
    input  wire         s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [ 1:0] s_axil_bresp,
    output logic        s_axil_bvalid,
    input  wire         s_axil_bready,
    input  wire  [24:0] s_axil_araddr,
    input  wire         s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [63:0] s_axil_rdata,
    output logic [ 1:0] s_axil_rresp,
    output logic        s_axil_rvalid,
    input  wire         s_axil_rready,

    // Writes of tables: which, where, what.
    output logic        w_smt,
    output logic        w_pbl,
    output logic        w_cmt,
    output logic        w_context,
    output logic [22:0] w_address,
    output logic [63:0] w_data,
    output logic [ 1:0] w_half,

    // Stores into QP pages, in the clock in which they are taken; AOTF headers, read back.
    output logic [$clog2(QPS)-1:0] page_slot,
    output logic [           11:3] page_at,
    output logic [           63:0] page_data,
    output logic [            7:0] page_strb,
    output logic                   page_offer,
    output logic                   page_valid,
    input  wire                    page_hold,
    output logic [$clog2(QPS)-1:0] peek_slot,
    output logic [            9:3] peek_at,
    input  wire                    peek_ready,
    input  wire  [           63:0] peek_data,
    // For QP_STATUS.
    input  wire  [           15:0] sq_consumer[QPS],
    input  wire  [           15:0] rq_consumer[QPS],
    input  wire  [           15:0] dropped    [QPS],

    // Doorbells.
    output logic [$clog2(QPS)-1:0] db_slot,
    output logic [           15:0] db_index,
    output logic                   db_sq,
    output logic                   db_rq,
    output logic [$clog2(CQS)-1:0] db_cq,
    output logic [           31:0] db_consumer,
    output logic                   db_arm,
    output logic                   db_cq_valid,

    // States: changes by the driver, and by faults of up to two QPs a clock.
    output logic [      4*QPS-1:0] states,
    output logic [$clog2(QPS)-1:0] enter_slot,
    output logic [            3:0] enter_state,
    output logic [            3:0] enter_from,
    output logic                   enter_valid,
    input  wire  [$clog2(QPS)-1:0] fault_slot0,
    input  wire                    fault_valid0,
    input  wire  [$clog2(QPS)-1:0] fault_slot1,
    input  wire                    fault_valid1,

    // FENCE: a write of it, and that it is not done.
    output logic fence_start,
    input  wire  fence_waiting,

    // MISS: what it reads, what is written to it.
    input  wire  [63:0] oldest_miss,
    output logic        miss_answered,
    output logic [63:0] miss_answer,

    // EVENT: the oldest one, and that it was read.
    input  wire  [ 7:0] event_kind,
    input  wire  [15:0] event_index,
    input  wire         event_there,
    output logic        event_taken,

    input wire [63:0] counters[37]
);
  localparam int QW = $clog2(QPS);
  localparam int CW = $clog2(CQS);

  // ---- writes ----------------------------------------------------------------------------------------------------------------------------

  logic take_write;
  logic [24:0] at;
  logic [63:0] data;
  logic [7:0] strb;
  logic write;

  assign take_write = s_axil_awvalid && s_axil_wvalid && (!s_axil_bvalid || s_axil_bready) && !page_hold;
  assign page_slot = s_axil_awaddr[12+:QW];
  assign page_at = s_axil_awaddr[11:3];
  assign page_data = s_axil_wdata;
  assign page_strb = s_axil_wstrb;
  assign page_offer = s_axil_awvalid && s_axil_wvalid && s_axil_awaddr[24:23] == 2'd1;
  assign page_valid = take_write && page_offer;
  assign s_axil_awready = take_write;
  assign s_axil_wready = take_write;
  assign s_axil_bresp = 2'b00;

  always_ff @(posedge clk) begin
    at <= s_axil_awaddr;
    data <= s_axil_wdata;
    strb <= s_axil_wstrb;
    write <= take_write;
    if (s_axil_bready) s_axil_bvalid <= 1'b0;
    if (take_write) s_axil_bvalid <= 1'b1;
    if (rst) begin
      write <= 1'b0;
      s_axil_bvalid <= 1'b0;
    end
  end

  logic low, high, in_registers, in_pages, in_tables;
  assign low = write && &strb[3:0];
  assign high = write && &strb[7:4];
  assign in_registers = at[24:23] == 2'd0;
  assign in_pages = at[24:23] == 2'd1;
  assign in_tables = at[24:23] == 2'd2;

  logic [31:0] fence_index;
  assign fence_start = in_registers && at[15:3] == 13'h00C && low;
  always_ff @(posedge clk) if (fence_start) fence_index <= data[31:0];

  // Written in halves, it counts with the upper one.
  logic [31:0] miss_low;
  always_ff @(posedge clk) if (in_registers && at[15:3] == 13'h010 && low) miss_low <= data[31:0];
  assign miss_answered = in_registers && at[15:3] == 13'h010 && high;
  assign miss_answer = {data[63:32], low ? data[31:0] : miss_low};

  // Tables: 1 MiB each, in the order of their registers.
  assign w_address = {3'b0, at[19:3], 3'b0};
  assign w_data = data;
  assign w_half = {high, low};
  assign w_smt = write && in_tables && at[22:20] == 3'd0;
  assign w_pbl = write && in_tables && at[22:20] == 3'd1;
  assign w_cmt = write && in_tables && at[22:20] == 3'd2;
  assign w_context = write && in_tables && at[22:20] == 3'd3;

  assign db_slot = at[12+:QW];
  assign db_sq = in_pages && at[11:3] == 9'd0 && low;
  assign db_rq = in_pages && at[11:3] == 9'd0 && high;
  assign db_index = db_sq ? data[15:0] : data[47:32];
  assign db_cq = data[CW-1:0];
  assign db_arm = data[16];
  assign db_consumer = data[63:32];

  // A CQ is its owner's alone (2).
  logic [15:0] owner_of_cq [CQS];
  logic [15:0] owner_of_qp [QPS];
  logic [31:0] number_of_qp[QPS];
  assign db_cq_valid = in_pages && at[11:3] == 9'd1 && low && high && owner_of_cq[db_cq] == owner_of_qp[db_slot];

  always_ff @(posedge clk) begin
    if (w_cmt && at[5:3] == 3'd0 && high) owner_of_cq[at[6+:CW]] <= data[47:32];
    if (w_context && at[7:3] == 5'd0) begin
      if (high) owner_of_qp[at[8+:QW]] <= data[63:48];
      if (low) number_of_qp[at[8+:QW]] <= data[31:0];
    end
  end

  // ---- states ----------------------------------------------------------------------------------------------------------------------------

  logic enable, command, command_busy, refused;
  logic [3:0] command_to, command_from;
  logic [QW-1:0] command_slot, wait_slot0, wait_slot1;
  logic wait0, wait1, allowed;

  assign command = in_registers && at[15:3] == 13'h00C && high;
  assign command_from = states[4*command_slot+:4];
  always_comb begin
    case (command_to)
      es_rnic_pkg::Reset, es_rnic_pkg::Error: allowed = 1'b1;
      es_rnic_pkg::Init: allowed = command_from == es_rnic_pkg::Reset;
      es_rnic_pkg::Rtr: allowed = command_from == es_rnic_pkg::Init;
      es_rnic_pkg::Rts: allowed = command_from == es_rnic_pkg::Rtr || command_from == es_rnic_pkg::Sqd;
      es_rnic_pkg::Sqd: allowed = command_from == es_rnic_pkg::Rts;
      default: allowed = 1'b0;
    endcase
  end

  always_ff @(posedge clk) begin
    enter_valid <= 1'b0;
    if (in_registers && at[15:3] == 13'h001 && low) enable <= data[0];
    if (command && !command_busy) begin
      command_busy <= 1'b1;
      command_slot <= data[32+:QW];
      command_to   <= data[51:48];
    end
    // One change a clock: faults first. Only a QP at work can fail.
    if (wait0 || wait1) begin
      enter_slot <= wait0 ? wait_slot0 : wait_slot1;
      enter_from <= states[4*(wait0?wait_slot0 : wait_slot1)+:4];
      enter_state <= es_rnic_pkg::Error;
      enter_valid <= states[4*(wait0?wait_slot0 : wait_slot1)+:4] != es_rnic_pkg::Error;
      states[4*(wait0?wait_slot0 : wait_slot1)+:4] <= es_rnic_pkg::Error;
      if (wait0) wait0 <= 1'b0;
      else wait1 <= 1'b0;
    end else if (command_busy) begin
      command_busy <= 1'b0;
      refused <= !allowed || !enable;
      if (allowed && enable) begin
        enter_slot <= command_slot;
        enter_from <= command_from;
        enter_state <= command_to;
        enter_valid <= 1'b1;
        states[4*command_slot+:4] <= command_to;
      end
    end
    if (fault_valid0) begin
      wait0 <= 1'b1;
      wait_slot0 <= fault_slot0;
    end
    if (fault_valid1) begin
      wait1 <= 1'b1;
      wait_slot1 <= fault_slot1;
    end
    if (rst) begin
      enable <= 1'b0;
      command_busy <= 1'b0;
      refused <= 1'b0;
      enter_valid <= 1'b0;
      states <= '0;
      wait0 <= 1'b0;
      wait1 <= 1'b0;
    end
  end

  // ---- reads -----------------------------------------------------------------------------------------------------------------------------

  logic read;
  logic [24:0] from;

  logic is_header, peeked;
  assign is_header = from[24:23] == 2'd1 && from[11:10] == 2'd3;
  assign peek_slot = from[12+:QW];
  assign peek_at = from[9:3];
  assign s_axil_arready = !read && (!s_axil_rvalid || s_axil_rready);
  assign s_axil_rresp = 2'b00;

  localparam logic [31:0] Features = 32'h0000_0787;  // SEND, WRITE, READ, FLAGS, BOTF, AOTF, MISS

  always_ff @(posedge clk) begin
    event_taken <= 1'b0;
    // A header comes out of the windows' memory when its port is free, and a clock later.
    read <= (s_axil_arvalid && s_axil_arready) || (read && is_header && !peeked);
    peeked <= read && is_header && !peeked && peek_ready;
    if (s_axil_arready) from <= s_axil_araddr;
    if (s_axil_rready) s_axil_rvalid <= 1'b0;
    if (read && (!is_header || peeked)) begin
      s_axil_rvalid <= 1'b1;
      s_axil_rdata  <= '0;
      if (from[24:23] == 2'd0) begin
        case (from[15:3])
          13'h000: s_axil_rdata <= {32'd1, 32'h4349_4E52};
          13'h001: s_axil_rdata <= {31'b0, 1'b1, 31'b0, enable};
          13'h002: s_axil_rdata <= {32'b0, Features};
          13'h004: s_axil_rdata <= {32'(CQS), 32'(QPS)};
          13'h005: s_axil_rdata <= '0;
          13'h006: s_axil_rdata <= {32'(PBLS), 32'(STAGS)};
          13'h007: s_axil_rdata <= {32'(es_rnic_pkg::InlineBytes), 8'(READS), 8'(READS), 8'(es_rnic_pkg::WqeBlocks), 8'd2};
          13'h008: s_axil_rdata <= {32'h0010_0000, 32'h0000_0000};
          13'h009: s_axil_rdata <= {32'h0030_0000, 32'h0020_0000};
          13'h00A: s_axil_rdata <= {32'h0050_0000, 32'h0040_0000};
          13'h00C: s_axil_rdata <= {command_busy, refused, 30'b0, fence_waiting ? fence_index : 32'hFFFF_FFFF};
          13'h00E: s_axil_rdata <= 64'(event_there);
          13'h00F: begin
            // What it is of: a CQ, otherwise a QP, told by its number.
            if (event_there)
              s_axil_rdata <= {32'b0, event_kind == 8'd2 ? event_index : number_of_qp[event_index[QW-1:0]][31:16], 8'b0, event_kind};
            event_taken <= event_there && !from[2];
          end
          13'h010: s_axil_rdata <= oldest_miss;
          default: if (from[15:3] >= 13'h020 && from[15:3] < 13'h045) s_axil_rdata <= counters[from[8:3]-6'h20];
        endcase
      end else if (from[24:23] == 2'd1) begin
        if (from[11:3] == 9'd3)
          s_axil_rdata <= {dropped[from[12+:QW]], rq_consumer[from[12+:QW]], sq_consumer[from[12+:QW]], 12'b0, states[4*from[12+:QW]+:4]};
        if (is_header) s_axil_rdata <= peek_data;
      end else if (from[22:20] == 3'd3 && from[7:3] == 5'd0)
        s_axil_rdata <= {32'b0, number_of_qp[from[8+:QW]][31:4], states[4*from[8+:QW]+:4]};
    end
    if (rst) begin
      read <= 1'b0;
      peeked <= 1'b0;
      s_axil_rvalid <= 1'b0;
    end
  end
endmodule
