// Acknowledges and Synchronises of all QPs, and what the Receive Module answers: one stream of urgent jobs.
//
// Acknowledges of a QP are one for as many messages as were taken since the last.
module es_rnic_control #(
    parameter int QPS = 16
) (
    input wire clk,
    input wire rst,

    input wire [$clog2(QPS)-1:0] w_slot,
    input wire [            2:0] w_word,
    input wire [           63:0] w_data,
    input wire [            1:0] w_half,
    input wire                   w_valid,
    input wire [$clog2(QPS)-1:0] enter_slot,
    input wire [            3:0] enter_state,
    input wire [            3:0] enter_from,
    input wire                   enter_valid,

    // A QP fails, and its peer knows.
    input wire [$clog2(QPS)-1:0] told_slot,
    input wire                   told_valid,

    input wire [$clog2(QPS)-1:0] taken_slot,
    input wire [           31:0] taken_message,
    input wire                   taken_valid,
    input wire [$clog2(QPS)-1:0] asked_slot,
    input wire [           31:0] asked_message,
    input wire                   asked_valid,

    input  wire es_rnic_pkg::job_t answer,
    input  wire                    answer_valid,
    output logic                   answer_ready,

    output es_rnic_pkg::job_t urgent,
    output logic              urgent_valid,
    input  wire               urgent_ready,

    output logic stat_acknowledge
);
  localparam int QW = $clog2(QPS);

  logic [QPS-1:0] acknowledge, synchronise, stop, told, granted;
  logic [31:0] message[QPS];
  logic [31:0] serial[QPS];
  logic [QW-1:0] pick;
  logic load;
  es_rnic_pkg::context_t qp;
  es_rnic_pkg::job_t next;

  assign load = urgent_ready || !urgent_valid;
  assign answer_ready = load;

  es_arbiter #(
      .N(QPS)
  ) round (
      .clk,
      .rst,
      .request(acknowledge | synchronise | stop),
      .grant  (granted),
      .index  (pick),
      .taken  (load && !answer_valid)
  );
  es_rnic_context #(
      .QPS(QPS)
  ) of_pick (
      .clk,
      .w_slot,
      .w_word,
      .w_data,
      .w_half,
      .w_valid,
      .slot (pick),
      .entry(qp)
  );

  always_comb begin
    next = '0;
    next.untagged = 1'b1;
    next.qn = 32'd4;
    next.stream = qp.stream;
    next.peer = qp.peer;
    next.qp = qp.peer_qp;
    if (synchronise[pick]) begin
      next.opcode = es_rnic_pkg::Synchronise;
      next.stag = 32'd1;
      next.to = {qp.first_sent, serial[pick] + qp.first_sent + 1'b1};
    end else if (acknowledge[pick]) begin
      next.opcode = es_rnic_pkg::Acknowledge;
      next.to = {message[pick], 32'b0};
    end else begin
      next.opcode = es_rnic_pkg::Terminate;
      next.qn = 32'd2;
      next.to = {32'd1, 32'd0};
      next.body_bytes = 6'd4;
    end
    if (answer_valid) next = answer;
  end

  always_ff @(posedge clk) begin
    stat_acknowledge <= 1'b0;
    if (load) begin
      urgent <= next;
      urgent_valid <= answer_valid || |granted;
      if (!answer_valid && |granted) begin
        if (synchronise[pick]) begin
          synchronise[pick] <= 1'b0;
          serial[pick] <= serial[pick] + 1'b1;
        end else if (acknowledge[pick]) begin
          acknowledge[pick] <= 1'b0;
          stat_acknowledge  <= 1'b1;
        end else stop[pick] <= 1'b0;
      end
    end
    if (asked_valid) begin
      acknowledge[asked_slot] <= 1'b1;
      message[asked_slot] <= asked_message;
    end
    if (taken_valid) begin
      acknowledge[taken_slot] <= 1'b1;
      message[taken_slot] <= taken_message;
    end
    if (told_valid) told[told_slot] <= 1'b1;
    if (enter_valid) begin
      if (enter_state == es_rnic_pkg::Rts && enter_from == es_rnic_pkg::Rtr) synchronise[enter_slot] <= 1'b1;
      if (enter_state == es_rnic_pkg::Reset || enter_state == es_rnic_pkg::Error) begin
        synchronise[enter_slot] <= 1'b0;
        acknowledge[enter_slot] <= 1'b0;
        // The peer is told, if there is one, once.
        stop[enter_slot] <= enter_state == es_rnic_pkg::Error && !told[enter_slot] &&
            (enter_from == es_rnic_pkg::Rts || enter_from == es_rnic_pkg::Rtr || enter_from == es_rnic_pkg::Sqd);
      end
      if (enter_state == es_rnic_pkg::Reset) told[enter_slot] <= 1'b0;
      if (enter_state == es_rnic_pkg::Rtr) serial[enter_slot] <= '0;
    end
    if (rst) begin
      urgent_valid <= 1'b0;
      acknowledge <= '0;
      synchronise <= '0;
      stop <= '0;
      told <= '0;
    end
  end
endmodule
