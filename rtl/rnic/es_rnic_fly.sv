// On-the-fly windows (docs/rnic.md, 13): what programs store into their QP pages to send it, BOTF and AOTF, without a WQE in memory.
//
// A kick or an AOTF store offers the first block of its WQE a clock after it was taken (`offer`). If the SQ takes it at once (`direct`), further blocks
// follow as `row`, one a clock; else all go into the QP's queue, from where the SQ picks them one WQE at a time, in order with what its ring has. What is not
// whole, finds no room, or is not for a QP that sends, is dropped and counted. Stores wait (`hold`) while rows are copied, up to 8 clocks, and while the
// windows of a QP that went to RESET are made empty, 32 clocks.
module es_rnic_fly #(
    parameter int QPS    = 16,  // QPs, a power of two
    parameter int BLOCKS = 32   // blocks that a QP's queue holds, a power of two
) (
    input wire clk,
    input wire rst,

    // Stores into QP pages, in the clock in which they are taken.
    input  wire  [$clog2(QPS)-1:0] s_slot,
    input  wire  [           11:3] s_at,     // word of the page
    input  wire  [           63:0] s_data,
    input  wire  [            7:0] s_strb,
    input  wire                    s_offer,  // one wants to be taken: s_slot and s_at are those of s_valid
    input  wire                    s_valid,
    output logic                   hold,     // none may be taken

    // AOTF headers as they are read back: the word comes in the clock after peek_ready.
    input  wire  [$clog2(QPS)-1:0] peek_slot,
    input  wire  [            9:3] peek_at,
    output logic                   peek_ready,
    output logic [           63:0] peek_data,

    input wire [      4*QPS-1:0] states,
    input wire [$clog2(QPS)-1:0] enter_slot,
    input wire [            3:0] enter_state,
    input wire                   enter_valid,
    input wire [           15:0] posted     [QPS], // what the doorbells of the SQs have handed over

    // The WQE that comes: its first block, and whether the SQ takes it in this clock.
    output logic                   offer,
    output logic [$clog2(QPS)-1:0] offer_slot,
    input  wire                    direct,

    // The queues: which have something, behind which index of the ring it stands; a WQE is picked, and its first block comes in the next clock.
    output logic [        QPS-1:0] queued,
    output logic [           15:0] behind   [QPS],
    input  wire  [$clog2(QPS)-1:0] pick_slot,
    input  wire                    pick,
    output logic                   first,

    // Blocks of offer, first and row.
    output logic [511:0] block,
    output logic         row,
    output logic         more,   // rows follow: nothing is to be picked, or taken directly

    output logic [15:0] dropped     [QPS],  // QP_STATUS
    output logic        stat_dropped
);
  localparam int QW = $clog2(QPS);
  localparam int N = es_rnic_pkg::WqeBlocks;

  if (BLOCKS < N) begin : gen_check
    $error("es_rnic_fly: BLOCKS is less than a WQE may have");
  end

  // ---- windows: 32 rows of 64 bytes a QP, BOTF in 0 to 8, headers in 16 to 31 ------------------------------------------------------------

  logic in_window, in_headers, is_kick, is_aotf, w_valid, clears;
  logic [7:0] w_strb;
  logic [QW+4:0] w_row, r_row, clear_row;
  logic [  511:0] window;
  logic [QPS-1:0] clear;
  logic [QW-1:0] clear_slot, clear_kept;
  logic [4:0] clear_at;
  logic copies;  // a row of the WQE that was kicked is read
  logic [3:0] copy_at;

  assign in_window = s_at >= 9'h080 && s_at < 9'h0C8;
  assign in_headers = s_at >= 9'h180;
  assign is_kick = s_at == 9'h004 && (&s_strb[3:0]);
  assign is_aotf = s_at >= 9'h100 && s_at < 9'h110 && (&s_strb);

  assign clears = |clear;
  assign w_valid = clears || (s_valid && (in_window || in_headers));
  assign w_row = clears ? {clear_slot, clear_at} : {s_slot, in_headers, s_at[9:6]};
  // Headers are registers: words and halves of them. The window takes any bytes.
  assign w_strb = in_headers ? {{4{&s_strb[7:4]}}, {4{&s_strb[3:0]}}} : s_strb;
  always_comb begin
    r_row = {peek_slot, 1'b1, peek_at[9:6]};
    if (s_offer) r_row = {s_slot, s_at[11] ? {1'b1, s_at[6:3]} : 5'd0};
    if (copies) r_row = {offer_slot, 1'b0, copy_at};
  end
  assign peek_ready = !s_offer && !copies;
  assign hold = copies || clears;

  for (genvar i = 0; i < 8; i++) begin : gen_word
    logic [63:0] words[QPS*32];
    logic [63:0] word;
    always_ff @(posedge clk) begin
      for (int j = 0; j < 8; j++) begin
        if (w_valid && (clears || (s_at[5:3] == 3'(i) && w_strb[j]))) words[w_row][8*j+:8] <= clears ? '0 : s_data[8*j+:8];
      end
    end
    always_ff @(posedge clk) word <= words[r_row];
    assign window[64*i+:64] = word;
  end

  logic [2:0] peek_word;
  always_ff @(posedge clk) peek_word <= peek_at[5:3];
  assign peek_data = window[64*peek_word+:64];

  // QPs whose windows are to be made empty, one after the other.
  always_comb begin
    clear_slot = '0;
    for (int i = QPS - 1; i >= 0; i--) if (clear[i]) clear_slot = QW'(i);
    if (clear_at != '0) clear_slot = clear_kept;
  end
  always_ff @(posedge clk) begin
    clear_kept <= clear_slot;
    clear_at   <= clears ? clear_at + 1'b1 : '0;
    if (&clear_at) clear[clear_slot] <= 1'b0;
    if (enter_valid && enter_state == es_rnic_pkg::Reset) clear[enter_slot] <= 1'b1;
    if (rst) begin
      clear_at <= '0;
      clear <= '1;
    end
  end

  // ---- a WQE that was kicked -------------------------------------------------------------------------------------------------------------

  logic told, told_kick;  // a kick or AOTF store was taken in the clock before
  logic [QW-1:0] told_slot;
  logic [7:0] told_blocks;
  logic [63:0] told_value;
  logic [511:0] kicked;
  logic [3:0] state_of_qp;
  logic may, fits, whole, put, goes_on;
  logic copy_row, copy_direct, copy_queue;  // the row that was read, and where it goes
  logic [3:0] copy_last, copy_next;

  always_ff @(posedge clk) begin
    told <= s_valid && (is_kick || is_aotf);
    told_kick <= is_kick;
    if (!copies) told_slot <= s_slot;  // it stays while its rows are copied
    told_blocks <= s_data[7:0];
    told_value  <= s_data;
    if (rst) told <= 1'b0;
  end

  assign offer_slot  = told_slot;
  assign state_of_qp = states[4*told_slot+:4];
  assign may         = state_of_qp == es_rnic_pkg::Rts || state_of_qp == es_rnic_pkg::Sqd || state_of_qp == es_rnic_pkg::Error;

  always_comb begin
    kicked = window;
    if (!told_kick) kicked[319:256] = told_value;
    // A header is a Write or Send of one block with 8 bytes inline.
    if (told_kick) whole = told_blocks != '0 && told_blocks <= 8'(N) && window[23:16] == told_blocks;
    else
      whole = window[7:0] <= es_rnic_pkg::WqeSendInvalidate && window[11] && !window[12] && window[23:16] == 8'd1 && window[63:32] == 32'd8;
  end
  assign offer   = told && may && whole;
  assign goes_on = told && told_kick && told_blocks > 8'd1 && told_blocks <= 8'(N);
  assign copies  = goes_on || (copy_row && copy_at <= copy_last);

  // Row 1 is read beside the offer of block 0, and so on.
  assign copy_at = goes_on ? 4'd1 : copy_next;
  always_ff @(posedge clk) begin
    copy_row  <= copies;
    copy_next <= copy_at + 1'b1;
    if (goes_on) begin
      copy_last   <= 4'(told_blocks - 1'b1);
      copy_direct <= offer && direct;
      copy_queue  <= put;
    end
    if (rst) copy_row <= 1'b0;
  end

  // ---- queues ----------------------------------------------------------------------------------------------------------------------------

  logic [511:0] queue_block;
  logic queue_row;

  es_rnic_fly_queue #(
      .QPS   (QPS),
      .BLOCKS(BLOCKS)
  ) queue (
      .clk,
      .rst,
      .empty_slot(enter_slot),
      .empty     (enter_valid && enter_state == es_rnic_pkg::Reset),
      .s_slot    (told_slot),
      .s_block   (copy_row ? window : kicked),
      .s_blocks  (told_kick ? told_blocks[3:0] : 4'd1),
      .s_behind  (posted[told_slot]),
      .s_valid   (put),
      .s_row     (copy_row && copy_queue),
      .s_room    (fits),
      .queued,
      .behind,
      .pick_slot,
      .pick,
      .block     (queue_block),
      .first,
      .row       (queue_row)
  );
  assign put  = offer && !direct && fits;
  assign row  = queue_row || (copy_row && copy_direct);
  assign more = first || queue_row || copy_row;
  always_comb begin
    block = kicked;
    if (first || queue_row) block = queue_block;
    else if (copy_row) block = window;
  end

  always_ff @(posedge clk) begin
    if (told && !(offer && (direct || put)) && dropped[told_slot] != '1) dropped[told_slot] <= dropped[told_slot] + 1'b1;
    if (enter_valid && enter_state == es_rnic_pkg::Reset) dropped[enter_slot] <= '0;
    stat_dropped <= told && !(offer && (direct || put));
    if (rst) begin
      stat_dropped <= 1'b0;
      for (int i = 0; i < QPS; i++) dropped[i] <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      // Neither stores nor picks while rows are under way, which come from one place at a time.
      no_store_while_held : assert (!(s_valid && hold));
      no_pick_between : assert (!(pick && more));
      no_direct_between : assert (!(direct && (first || queue_row || copy_row || !offer)));
      one_source : assert (!(queue_row && copy_row));
    end
  end
`endif
endmodule
