// The host's side of the bridge: has the Function of a name for as long as it is wanted, and resets its Link (docs/wire.md, section 8).
//
// While `want` and `up` it attaches, again after RETRY_CLOCKS if that is refused; then `link`, until the Function is not wanted any more, the session is lost, or
// `link_reset` asks for a Hot Reset, which ends when the box says so and link_reset has fallen. Between two times of `link` everything on its way is forgotten: `halt`
// until the Root Port has taken what it had begun to take, `drop` what still comes, `clean` at the end.
module es_peb_ask #(
    parameter int RETRY_CLOCKS = 1_250_000  // clocks until a refused Attach is said again
) (
    input wire clk,
    input wire rst,
    input wire up,   // the session
    input wire want,

    input wire [255:0] function_name,
    input wire [ 15:0] max_payload,
    input wire [ 15:0] max_read,
    input wire [ 15:0] stream,

    output logic       attached,  // from Attached to Detached
    output logic       link,      // TLPs may pass
    output logic [1:0] refusal,   // what the last Attached said

    input wire link_reset,

    input  wire         s_ctl_own,
    input  wire  [ 7:0] s_ctl_code,
    input  wire  [ 4:0] s_ctl_dws,
    input  wire  [ 7:0] s_ctl_status,
    input  wire  [15:0] s_ctl_stream,
    input  wire         s_ctl_valid,
    output logic        s_ctl_ready,

    output logic [ 15:0] m_ctl_stream,
    output logic [319:0] m_ctl_message,
    output logic [  5:0] m_ctl_bytes,
    output logic         m_ctl_valid,
    input  wire          m_ctl_ready,

    input  wire  gate_busy,  // a TLP is going to the box
    input  wire  down_busy,  // one is going to the Root Port
    output logic halt,
    output logic drop,
    output logic clean,      // a clock

    output logic [31:0] stat_attached,
    output logic [31:0] stat_denied,
    output logic [31:0] stat_unknown,   // messages without effect
    output logic [31:0] stat_resets
);
  localparam logic [7:0] ATTACH = 8'd1, ATTACHED = 8'd2, DETACH = 8'd3, DETACHED = 8'd4, HOT_RESET = 8'd5, HOT_RESET_DONE = 8'd6;

  // DOWN: nothing.  ASK: Attach leaves.  WAIT: for its answer.  AGAIN: it was refused.  LIVE.  CLOSE: what goes to the box goes out whole.  TELL: Detach or
  // HotReset leaves.  HEAR: its answer.  HALT: what goes to the Root Port goes out whole.  CLEAN.
  localparam logic [3:0] DOWN = 4'd0, ASK = 4'd1, WAIT = 4'd2, AGAIN = 4'd3, LIVE = 4'd4;
  localparam logic [3:0] CLOSE = 4'd5, TELL = 4'd6, HEAR = 4'd7, HALT = 4'd8, CLEAN = 4'd9;

  logic [3:0] state;
  logic [$clog2(RETRY_CLOCKS+1)-1:0] waited;
  logic is_answer, is_end, gives_back, dropping, lost;

  assign lost = !up;
  assign s_ctl_ready = 1'b1;
  assign is_answer = s_ctl_valid && !s_ctl_own && s_ctl_code == ATTACHED && s_ctl_dws >= 5'd2 && s_ctl_stream == stream && state == WAIT;
  assign is_end = s_ctl_valid && s_ctl_own && state == HEAR && s_ctl_code == (gives_back ? DETACHED : HOT_RESET_DONE);

  assign link = state == LIVE;
  assign halt = state != LIVE && state != ASK && state != WAIT && state != AGAIN && state != DOWN;
  assign drop = dropping;
  assign clean = state == CLEAN;

  assign m_ctl_valid = state == ASK || state == TELL;
  assign m_ctl_stream = state == ASK ? '0 : stream;
  assign m_ctl_bytes = state == ASK ? 6'd40 : 6'd4;
  assign m_ctl_message = state == ASK ? {ATTACH, 8'd0, stream, max_payload, max_read, function_name} :
      {gives_back ? DETACH : HOT_RESET, 312'd0};

  always_ff @(posedge clk) begin
    waited <= waited + 1'b1;
    // What the Root Port has begun to take it gets; behind that nothing is kept.
    if (halt && !down_busy) dropping <= 1'b1;
    if (state == CLEAN) dropping <= 1'b0;
    case (state)
      DOWN:  if (up && want) state <= ASK;
      ASK:   if (m_ctl_ready) state <= WAIT;
      WAIT:
      if (is_answer) begin
        refusal <= s_ctl_status[1:0];
        waited <= '0;
        state <= s_ctl_status == '0 ? LIVE : AGAIN;
        attached <= s_ctl_status == '0;
      end
      AGAIN: if (waited == $bits(waited)'(RETRY_CLOCKS)) state <= DOWN;
      LIVE:
      if (!want || link_reset) begin
        gives_back <= !want;
        state <= CLOSE;
      end
      CLOSE: if (!gate_busy) state <= TELL;
      TELL:  if (m_ctl_ready) state <= HEAR;
      HEAR:  if (is_end) state <= HALT;
      // A reset lasts as long as the Root Port holds it.
      HALT:  if (dropping && (gives_back || !attached || !link_reset)) state <= CLEAN;
      default: begin
        state <= attached && !gives_back ? LIVE : DOWN;
        if (gives_back) attached <= 1'b0;
        gives_back <= 1'b0;
      end
    endcase
    if (lost) begin
      attached <= 1'b0;
      if (state == ASK || state == WAIT || state == AGAIN) state <= DOWN;
      else if (state == LIVE || state == CLOSE || state == TELL || state == HEAR) state <= HALT;
    end
    if (rst) begin
      state <= CLEAN;
      attached <= 1'b0;
      gives_back <= 1'b0;
      dropping <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (is_answer && s_ctl_status == '0) stat_attached <= stat_attached + 1'b1;
    if (is_answer && s_ctl_status != '0) stat_denied <= stat_denied + 1'b1;
    if (s_ctl_valid && !is_answer && !is_end) stat_unknown <= stat_unknown + 1'b1;
    if (state == TELL && m_ctl_ready && !gives_back) stat_resets <= stat_resets + 1'b1;
    if (rst) begin
      stat_attached <= '0;
      stat_denied   <= '0;
      stat_unknown  <= '0;
      stat_resets   <= '0;
    end
  end
endmodule
