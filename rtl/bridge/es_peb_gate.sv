// The host's side of the bridge, towards the box: what the Root Port sends goes on, or is refused.
//
// Takes TLPs from es_peb_intake. While `link` they go to es_peb_send, otherwise a Non-Posted Request is answered with UR at `m_answer` and anything else dropped and
// counted. `lost`: nobody takes what has begun to go on; the rest of it is dropped.
//
// On the way it learns what buses lie below the box's Upstream Port, from the write of its bus numbers; `first_bus` is 0 while none do.
//
// Three clocks and its beats for each TLP.
module es_peb_gate #(
    parameter int DATA_W = 64  // bits of tdata
) (
    input  wire  clk,
    input  wire  rst,
    input  wire  clear,   // the counters
    input  wire  link,
    input  wire  lost,
    input  wire  forget,  // the bus numbers are gone
    output logic busy,    // a TLP is going on

    output logic [7:0] first_bus,
    output logic [7:0] last_bus,

    input  wire es_peb_pkg::tlp_t s_hdr_tlp,
    input  wire                   s_hdr_good,
    input  wire                   s_hdr_valid,
    output logic                  s_hdr_ready,

    input  wire  [DATA_W-1:0] s_axis_tdata,
    input  wire               s_axis_tlast,
    input  wire               s_axis_tvalid,
    output logic              s_axis_tready,

    output logic [12:0] m_hdr_bytes,
    output logic        m_hdr_valid,
    input  wire         m_hdr_ready,

    output logic [DATA_W-1:0] m_axis_tdata,
    output logic              m_axis_tvalid,
    input  wire               m_axis_tready,

    output es_peb_pkg::tlp_t m_answer,        // of 12 bytes
    output logic             m_answer_valid,
    input  wire              m_answer_ready,

    output logic [31:0] stat_forwarded,
    output logic [31:0] stat_malformed,
    output logic [31:0] stat_refused
);
  localparam logic [2:0] IDLE = 3'd0, LOOK = 3'd1, JUDGE = 3'd2, HEAD = 3'd3, PASS = 3'd4, DROP = 3'd5;

  // Of the header of Type 1, the register with the bus numbers.
  localparam logic [9:0] BUSES = 10'h006;

  logic [2:0] state, group;
  es_peb_pkg::tlp_t tlp, blank;
  logic good, posted, to_buses, look_now;
  logic [31:0] data;

  assign s_hdr_ready = state == IDLE && !m_answer_valid;
  assign busy = state == HEAD || state == PASS;
  assign data = es_wire_pkg::swap4(tlp.dw3);
  assign look_now = state == JUDGE;

  always_ff @(posedge clk) begin
    if (s_hdr_ready) begin
      tlp  <= s_hdr_tlp;
      good <= s_hdr_good;
    end
    group <= es_peb_pkg::group(tlp);
    posted <= es_peb_pkg::class_of(tlp) == es_peb_pkg::POSTED;
    to_buses <= es_peb_pkg::group(tlp) == es_peb_pkg::CONFIG && !tlp.kind[0] && tlp.fmt[1] && {tlp.dw2[11:8], tlp.dw2[7:2]} == BUSES;
    blank <= es_peb_pkg::completion(tlp);
    // The Completer of what nobody is there for: the device that was asked, or nobody.
    if (look_now)
      m_answer <= es_peb_pkg::filled(blank, group == es_peb_pkg::CONFIG ? tlp.dw2[31:16] : 16'd0, es_peb_pkg::UNSUPPORTED, 1'b0, 32'd0);
  end

  always_ff @(posedge clk) begin
    case (state)
      IDLE: if (s_hdr_valid && s_hdr_ready) state <= LOOK;
      LOOK: state <= JUDGE;
      JUDGE: begin
        state <= good && link ? HEAD : DROP;
        m_answer_valid <= good && !link && !posted && group != es_peb_pkg::COMPLETE;
      end
      HEAD:
      if (lost) state <= DROP;
      else if (m_hdr_ready) state <= PASS;
      PASS:
      if (s_axis_tvalid && s_axis_tready && s_axis_tlast) state <= IDLE;
      else if (lost) state <= DROP;
      default: if (s_axis_tvalid && s_axis_tlast) state <= IDLE;
    endcase
    if (m_answer_valid && m_answer_ready) m_answer_valid <= 1'b0;
    if (look_now && good && link && to_buses) begin
      if (tlp.first_be[1]) first_bus <= data[15:8];
      if (tlp.first_be[2]) last_bus <= data[23:16];
    end
    if (forget || rst) begin
      first_bus <= '0;
      last_bus  <= '0;
    end
    if (rst) begin
      state <= IDLE;
      m_answer_valid <= 1'b0;
    end
  end

  assign m_hdr_bytes   = 13'(tlp.fmt[0] ? 16 : 12) + (tlp.fmt[1] ? {es_peb_pkg::length_dw(tlp), 2'b00} : 13'd0);
  assign m_hdr_valid   = state == HEAD;
  assign m_axis_tdata  = s_axis_tdata;
  assign m_axis_tvalid = s_axis_tvalid && state == PASS;
  assign s_axis_tready = (state == PASS && m_axis_tready) || state == DROP;

  always_ff @(posedge clk) begin
    if (look_now) begin
      if (!good) stat_malformed <= stat_malformed + 1'b1;
      else if (!link) stat_refused <= stat_refused + 1'b1;
      else stat_forwarded <= stat_forwarded + 1'b1;
    end
    if (clear) begin
      stat_forwarded <= '0;
      stat_malformed <= '0;
      stat_refused   <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      answer_is_kept : assert (!(look_now && m_answer_valid));
    end
  end
`endif
endmodule
