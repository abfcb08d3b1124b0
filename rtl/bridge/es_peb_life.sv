// Who has the Function: what control messages of a host ask for (docs/wire.md, section 8), and the resets of the Link that come of them.
//
// Attach, Detach and HotReset are done and answered; others, which belong to features that the bridge does not offer, are counted. A Function that is given back, or
// whose session ends, is reset before anybody has it again. A reset of the Link: `halt` until nothing is on its way, `flush` what waits, `link_reset` until the
// Link's owner says `link_done`, and that falls again behind it. While a port holds the Link in reset (`link_enabled` is low) it stays there.
module es_peb_life #(
    parameter int STREAMS = 16,  // streams that a session can have
    parameter bit DOMAINS = 0,  // Domain is taken
    parameter bit SLOW = 0,  // a reset may last: who asks meanwhile is told that the Function is busy
    // The downstream port's ID once buses are numbered as section 9 says.
    parameter logic [15:0] PORT = 16'h0200
) (
    input wire clk,
    input wire rst,
    input wire up,   // the session
    input wire may,  // its host may have the Function

    output logic        attached,
    output logic [15:0] stream,
    output logic [15:0] max_payload,  // that the host grants, bytes
    output logic [15:0] max_read,
    output logic [15:0] domain,       // 0: none

    // The other Function of the box.
    input wire        other,
    input wire [15:0] other_stream,
    input wire        hold,          // nothing begins

    input  wire         s_ctl_own,
    input  wire         s_ctl_other,    // on stream 0: answered by the other's
    input  wire  [ 7:0] s_ctl_code,
    input  wire         s_ctl_short,
    input  wire         s_ctl_named,
    input  wire  [15:0] s_ctl_stream,
    input  wire  [15:0] s_ctl_payload,
    input  wire  [15:0] s_ctl_read,
    input  wire  [15:0] s_ctl_domain,
    input  wire         s_ctl_valid,
    output logic        s_ctl_ready,

    output logic [15:0] m_ctl_stream,
    output logic [63:0] m_ctl_message,
    output logic        m_ctl_long,
    output logic        m_ctl_valid,
    input  wire         m_ctl_ready,

    input  wire  link_enabled,
    input  wire  down_busy,
    input  wire  up_busy,
    output logic link,          // TLPs may pass
    output logic forget,        // the host has given up what it asked for
    output logic ending,        // it is gone
    output logic halt,
    output logic flush,         // the way to and from the Function
    output logic flush_host,    // what comes from the host, too
    output logic clear_ports,
    output logic link_reset,
    input  wire  link_done,

    output logic [31:0] stat_attached,
    output logic [31:0] stat_denied,    // Attach that was refused
    output logic [31:0] stat_unknown,   // messages without effect
    output logic [31:0] stat_resets
);
  localparam logic [7:0] ATTACH = 8'd1, ATTACHED = 8'd2, DETACH = 8'd3, DETACHED = 8'd4, HOT_RESET = 8'd5, HOT_RESET_DONE = 8'd6;
  localparam logic [7:0] DOMAIN = 8'd12;

  // What a reset is for, beside a port that asks for it.
  localparam logic [1:0] NOTHING = 2'd0, END = 2'd1, GIVEN = 2'd2, HOT = 2'd3;
  localparam logic [1:0] RUN = 2'd0, HALT = 2'd1, FLUSH = 2'd2, HELD = 2'd3;

  logic [1:0] reason, state;
  logic was_up, held, done;
  logic foreign, take, attach, ours, joins, fine;
  logic [1:0] status;

  assign foreign = !s_ctl_own && s_ctl_other;
  assign s_ctl_ready = foreign || ((reason == NOTHING || (SLOW && reason == END && attach)) && !m_ctl_valid && up && !hold);
  assign take = s_ctl_valid && s_ctl_ready && !foreign;
  assign attach = !s_ctl_own && s_ctl_code == ATTACH && !s_ctl_short && s_ctl_stream != '0;
  assign ours = s_ctl_own && (s_ctl_code == DETACH || s_ctl_code == HOT_RESET);
  assign joins = DOMAINS && s_ctl_own && s_ctl_code == DOMAIN;
  always_comb begin
    status = 2'd0;
    if (!s_ctl_named) status = 2'd1;
    else if (!may) status = 2'd2;
    else if (s_ctl_stream >= 16'(STREAMS) || (attached && s_ctl_stream == stream) || (other && s_ctl_stream == other_stream)) status = 2'd3;
    else if (attached || reason != NOTHING) status = 2'd2;
  end
  assign fine = take && attach && status == 2'd0;

  always_ff @(posedge clk) begin
    was_up <= up;
    if (m_ctl_ready) m_ctl_valid <= 1'b0;
    if (take && attach) begin
      m_ctl_valid <= 1'b1;
      m_ctl_stream <= '0;
      m_ctl_long <= 1'b1;
      m_ctl_message <= {ATTACHED, 6'd0, status, s_ctl_stream, status == 2'd0 ? PORT : 16'd0, 16'd0};
    end
    if (fine) begin
      attached <= 1'b1;
      stream <= s_ctl_stream;
      max_payload <= s_ctl_payload;
      max_read <= s_ctl_read;
    end
    if (take && joins) domain <= s_ctl_domain;
    if (take && ours) reason <= s_ctl_code == DETACH ? GIVEN : HOT;
    if (done) begin
      reason <= NOTHING;
      if (reason != END) begin
        m_ctl_valid <= up;
        m_ctl_stream <= stream;
        m_ctl_long <= 1'b0;
        m_ctl_message <= {reason == GIVEN ? DETACHED : HOT_RESET_DONE, 56'd0};
      end
      if (reason == GIVEN) attached <= 1'b0;
    end
    if (was_up && !up) begin
      reason <= END;
      attached <= 1'b0;
      m_ctl_valid <= 1'b0;
    end
    if (!attached) domain <= '0;
    if (rst) begin
      reason <= END;
      attached <= 1'b0;
      m_ctl_valid <= 1'b0;
      was_up <= 1'b0;
    end
  end

  // The reset of the Link.
  assign held = attached && !link_enabled;
  assign done = state == HELD && link_done && reason != NOTHING && !(was_up && !up);
  assign link = attached && state == RUN && reason == NOTHING && !link_reset && !link_done;
  assign halt = !link;
  assign forget = reason != NOTHING;
  assign ending = reason == END;
  assign flush = state == FLUSH || state == HELD;
  assign flush_host = flush && reason != NOTHING;
  assign clear_ports = rst || (flush && reason == END);

  always_ff @(posedge clk) begin
    case (state)
      RUN: if (!link_done && (reason != NOTHING || held)) state <= HALT;
      // What has begun goes out whole; without a session nobody takes what goes up.
      HALT: if (!down_busy && (!up_busy || ending)) state <= FLUSH;
      FLUSH: state <= HELD;
      default: if (link_done && reason == NOTHING && !held) state <= RUN;
    endcase
    if (state == HALT) link_reset <= 1'b1;
    else if (state == RUN && !link_done) link_reset <= 1'b0;
    if (state == HELD && link_done && reason == NOTHING && !held) link_reset <= 1'b0;
    if (rst) begin
      state <= RUN;
      link_reset <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (fine) stat_attached <= stat_attached + 1'b1;
    if (take && attach && !fine) stat_denied <= stat_denied + 1'b1;
    if (take && !attach && !ours && !joins) stat_unknown <= stat_unknown + 1'b1;
    if (state == FLUSH) stat_resets <= stat_resets + 1'b1;
    if (rst) begin
      stat_attached <= '0;
      stat_denied   <= '0;
      stat_unknown  <= '0;
      stat_resets   <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      nothing_passes_a_reset : assert (!(link && (flush || link_reset || !attached)));
    end
  end
`endif
endmodule
