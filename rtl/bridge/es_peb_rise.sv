// The host's side of the bridge, from the box: what may go to the Root Port does, in the order in which it came.
//
// Takes TLPs from es_peb_intake. A Request has to be of a device below the box's Upstream Port (buses `first_bus` to `last_bus`) and no Configuration Request; a
// Completion has to answer the Root Complex, on bus 0. Anything else is dropped and counted, as the other side is not to be trusted with more. `drop`: all is dropped.
//
// Three clocks and its beats for each TLP.
module es_peb_rise #(
    parameter int DATA_W = 64  // bits of tdata
) (
    input wire clk,
    input wire rst,    // what is on its way is forgotten
    input wire clear,  // the counters
    input wire drop,

    input wire [7:0] first_bus,  // 0: none
    input wire [7:0] last_bus,

    input  wire es_peb_pkg::tlp_t s_hdr_tlp,
    input  wire                   s_hdr_good,
    input  wire                   s_hdr_valid,
    output logic                  s_hdr_ready,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [1:0] m_hdr_class,
    output logic       m_hdr_relaxed,
    output logic       m_hdr_valid,
    input  wire        m_hdr_ready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    output logic [31:0] stat_forwarded,
    output logic [31:0] stat_malformed,
    output logic [31:0] stat_refused
);
  localparam logic [2:0] IDLE = 3'd0, LOOK = 3'd1, JUDGE = 3'd2, HEAD = 3'd3, PASS = 3'd4, DROP = 3'd5;

  logic [2:0] state, group;
  es_peb_pkg::tlp_t tlp;
  logic good, from_below, to_root, permitted, look_now;

  assign s_hdr_ready = state == IDLE;
  assign look_now = state == JUDGE;

  always_ff @(posedge clk) begin
    if (s_hdr_ready) begin
      tlp  <= s_hdr_tlp;
      good <= s_hdr_good;
    end
    group <= es_peb_pkg::group(tlp);
    from_below <= first_bus != '0 && tlp.requester[15:8] >= first_bus && tlp.requester[15:8] <= last_bus;
    to_root <= tlp.dw2[31:24] == '0;
    m_hdr_class <= es_peb_pkg::class_of(tlp);
  end
  always_comb begin
    case (group)
      es_peb_pkg::MEMORY, es_peb_pkg::ATOMIC, es_peb_pkg::MESSAGE: permitted = from_below;
      es_peb_pkg::COMPLETE: permitted = to_root;
      default: permitted = 1'b0;
    endcase
  end
  assign m_hdr_relaxed = tlp.attr[1];

  always_ff @(posedge clk) begin
    case (state)
      IDLE: if (s_hdr_valid) state <= LOOK;
      LOOK: state <= JUDGE;
      JUDGE: state <= good && permitted && !drop ? HEAD : DROP;
      HEAD:
      if (drop) state <= DROP;
      else if (m_hdr_ready) state <= PASS;
      PASS:
      if (s_axis_tvalid && s_axis_tready && s_axis_tlast) state <= IDLE;
      else if (drop) state <= DROP;
      default: if (s_axis_tvalid && s_axis_tlast) state <= IDLE;
    endcase
    if (rst) state <= IDLE;
  end

  assign m_hdr_valid   = state == HEAD && !drop;
  assign m_axis_tdata  = s_axis_tdata;
  assign m_axis_tkeep  = s_axis_tkeep;
  assign m_axis_tlast  = s_axis_tlast;
  assign m_axis_tvalid = s_axis_tvalid && state == PASS;
  assign s_axis_tready = (state == PASS && m_axis_tready) || state == DROP;

  always_ff @(posedge clk) begin
    if (look_now && !drop) begin
      if (!good) stat_malformed <= stat_malformed + 1'b1;
      else if (!permitted) stat_refused <= stat_refused + 1'b1;
      else stat_forwarded <= stat_forwarded + 1'b1;
    end
    if (clear) begin
      stat_forwarded <= '0;
      stat_malformed <= '0;
      stat_refused   <= '0;
    end
  end
endmodule
