// Events (docs/rnic.md, 5): what happened to QPs and CQs beside their completions, told to the driver one after the other.
//
// What happens is kept as a bit for its kind and QP, or CQ, so that nothing is lost; the same that happens again before it was told is told once. One QP and one
// CQ are looked at in a clock. An interrupt is due for each event.
module es_rnic_events #(
    parameter int QPS = 16,  // a power of two
    parameter int CQS = 16   // a power of two
) (
    input wire clk,
    input wire rst,

    input wire [      4*QPS-1:0] states,
    input wire [$clog2(QPS)-1:0] enter_slot,
    input wire [            3:0] enter_state,
    input wire                   enter_valid,

    input wire [        QPS-1:0] at_work,           // of each QP: send WQEs that were taken out of its ring are not complete
    input wire [$clog2(QPS)-1:0] blameless_slot,    // it failed, and no WQE is there to tell it by
    input wire                   blameless,
    input wire [$clog2(CQS)-1:0] overrun_cq,
    input wire                   overrun,
    input wire [$clog2(QPS)-1:0] established_slot,
    input wire                   established,
    input wire [$clog2(QPS)-1:0] violation_slot,
    input wire                   violation,
    input wire [$clog2(QPS)-1:0] gone_slot,         // its peer was lost
    input wire                   gone,

    // The oldest one: its kind, and of what.
    output logic [ 7:0] kind,
    output logic [15:0] index,
    output logic        there,
    input  wire         take,

    output logic irq,
    input  wire  irq_ready
);
  localparam int QW = $clog2(QPS);
  localparam int CW = $clog2(CQS);

  localparam logic [7:0] QpError = 8'd1;
  localparam logic [7:0] CqOverrun = 8'd2;
  localparam logic [7:0] SqDrained = 8'd4;
  localparam logic [7:0] Established = 8'd5;
  localparam logic [7:0] AccessViolation = 8'd6;
  localparam logic [7:0] PeerLost = 8'd7;

  logic [QPS-1:0] errors, drained, firsts, violations, losses;
  logic [CQS-1:0] overruns;
  logic [ QW-1:0] at;
  logic [ CW-1:0] cq;
  logic room, put, is_drained;
  logic [7:0] put_kind;

  assign is_drained = states[4*at+:4] == es_rnic_pkg::Sqd && !at_work[at];

  always_comb begin
    put = 1'b1;
    put_kind = PeerLost;
    if (firsts[at]) put_kind = Established;
    else if (violations[at]) put_kind = AccessViolation;
    else if (errors[at]) put_kind = QpError;
    else if (is_drained && !drained[at]) put_kind = SqDrained;
    else if (overruns[cq]) put_kind = CqOverrun;
    else put = losses[at];
  end

  always_ff @(posedge clk) begin
    at <= at + 1'b1;
    cq <= cq + 1'b1;
    if (put && room) begin
      case (put_kind)
        Established: firsts[at] <= 1'b0;
        AccessViolation: violations[at] <= 1'b0;
        QpError: errors[at] <= 1'b0;
        SqDrained: drained[at] <= 1'b1;
        CqOverrun: overruns[cq] <= 1'b0;
        default: losses[at] <= 1'b0;
      endcase
    end
    if (blameless) errors[blameless_slot] <= 1'b1;
    if (overrun) overruns[overrun_cq] <= 1'b1;
    if (established) firsts[established_slot] <= 1'b1;
    if (violation) violations[violation_slot] <= 1'b1;
    if (gone) losses[gone_slot] <= 1'b1;
    if (enter_valid) drained[enter_slot] <= 1'b0;
    if (enter_valid && enter_state == es_rnic_pkg::Reset) begin
      errors[enter_slot] <= 1'b0;
      firsts[enter_slot] <= 1'b0;
      violations[enter_slot] <= 1'b0;
      losses[enter_slot] <= 1'b0;
    end
    if (rst) begin
      at <= '0;
      cq <= '0;
      errors <= '0;
      drained <= '0;
      firsts <= '0;
      violations <= '0;
      losses <= '0;
      overruns <= '0;
    end
  end

  es_fifo #(
      .WIDTH(24),
      .DEPTH(16)
  ) events (
      .clk,
      .rst,
      .s_data ({put_kind, put_kind == CqOverrun ? 16'(cq) : 16'(at)}),
      .s_valid(put),
      .s_ready(room),
      .m_data ({kind, index}),
      .m_valid(there),
      .m_ready(take)
  );

  always_ff @(posedge clk) begin
    if (irq && irq_ready) irq <= 1'b0;
    if (put && room) irq <= 1'b1;
    if (rst) irq <= 1'b0;
  end
endmodule
