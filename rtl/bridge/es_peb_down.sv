// The bridge's switch for what comes from the host (PCI Express Base Specification 6.0, 2.2.4, 7.3.3): to its ports, to the Function, or refused.
//
// Takes TLPs from es_peb_intake. Configuration Requests to the ports are done here; those of Type 1 for the Function become Type 0. What is for the Function goes to
// es_peb_order. A Non-Posted Request that leads nowhere is answered with UR, anything else is dropped and counted. Answers leave at `m_answer`, ready-made.
//
// Four clocks and its beats for each TLP.
// A box with two slots has two of these, each with a downstream port of its own and a copy of the Upstream Port: a write to one copy is done to the other
// (`told`, `heard`), and `hold` keeps both from writing in one clock.
module es_peb_down #(
    parameter int DATA_W = 64,  // bits of tdata
    parameter logic [4:0] NUMBER = 5'd0  // of the downstream port
) (
    input wire clk,
    input wire rst,          // what is on its way is forgotten
    input wire clear_ports,
    input wire clear_upper,  // the Upstream Port's
    input wire clear,        // the counters
    input wire link,         // the Function can be reached
    input wire forget,       // nothing is begun or answered: all of it will be forgotten
    input wire flush,        // what is being handed on is given up
    input wire hold,         // the other slot looks at a TLP

    output es_peb_pkg::upstream_write_t told,
    input wire es_peb_pkg::upstream_write_t heard,

    input  wire es_peb_pkg::tlp_t s_hdr_tlp,
    input  wire                   s_hdr_good,
    input  wire                   s_hdr_valid,
    output logic                  s_hdr_ready,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output es_peb_pkg::tlp_t        m_hdr_tlp,
    output logic             [ 1:0] m_hdr_class,
    output logic                    m_hdr_relaxed,
    output logic                    m_hdr_fence,
    output logic             [25:0] m_hdr_transaction,
    output logic                    m_hdr_valid,
    input  wire                     m_hdr_ready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    output es_peb_pkg::tlp_t m_answer,        // 16 bytes if it has data, otherwise 12
    output logic             m_answer_valid,
    input  wire              m_answer_ready,

    // What the ports let pass upwards.
    output logic [15:0] function_id,   // of the Function: bus below the downstream port, device and function 0
    output logic [15:0] port_id,       // of the downstream port
    output logic        up_master,     // Memory Requests may go to the host
    output logic        peer_master,   // and to the other slot
    output logic        link_enabled,  // no port holds the Link below in reset
    input  wire  [63:0] address,       // of a Request of the Function
    output logic        looking,       // `claims` will not be about that in the next clock
    output logic        claims,        // the one of the clock before leads back to the Function

    output logic [31:0] stat_forwarded,
    output logic [31:0] stat_malformed,
    output logic [31:0] stat_spoofed,              // Requests whose Requester is not the Root Complex
    output logic [31:0] stat_unrouted,             // Requests to nowhere
    output logic [31:0] stat_unrouted_completions
);
  localparam logic [2:0] IDLE = 3'd0, LOOK = 3'd1, JUDGE = 3'd2, HEAD = 3'd3, PASS = 3'd4, DROP = 3'd5;

  logic [2:0] state;
  es_peb_pkg::tlp_t tlp;
  logic good;

  assign s_hdr_ready = state == IDLE && !m_answer_valid && !forget;
  always_ff @(posedge clk)
    if (s_hdr_ready) begin
      tlp  <= s_hdr_tlp;
      good <= s_hdr_good;
    end

  // Ports.
  logic [15:0] target, upstream_id;
  logic [9:0] register;
  logic [7:0] upper_secondary, upper_subordinate, lower_secondary, lower_subordinate;
  logic upper_master, lower_master, upper_up, lower_up, upper_claims, lower_claims, upper_write, lower_write;
  logic [31:0] upper_read, lower_read, data;
  logic [63:0] tlp_address, look;
  logic upper_open, lower_open;

  assign target = tlp.dw2[31:16];
  assign register = {tlp.dw2[11:8], tlp.dw2[7:2]};
  assign data = es_wire_pkg::swap4(tlp.dw3);
  assign tlp_address = es_peb_pkg::address(tlp);

  es_peb_port #(
      .DOWNSTREAM(0)
  ) upper (
      .clk,
      .rst        (clear_upper),
      .register   (heard.valid ? heard.dw : register),
      .read       (upper_read),
      .enables    (heard.valid ? heard.enables : tlp.first_be),
      .data       (heard.valid ? heard.data : data),
      .write      (upper_write || heard.valid),
      .secondary  (upper_secondary),
      .subordinate(upper_subordinate),
      .master     (upper_master),
      .up         (upper_up),
      .address    (tlp_address),
      .claims     (upper_claims)
  );
  // A reset from above takes the settings of the port below with it.
  es_peb_port #(
      .DOWNSTREAM(1),
      .NUMBER    (NUMBER)
  ) lower (
      .clk,
      .rst        (clear_ports || !upper_up),
      .register,
      .read       (lower_read),
      .enables    (tlp.first_be),
      .data,
      .write      (lower_write),
      .secondary  (lower_secondary),
      .subordinate(lower_subordinate),
      .master     (lower_master),
      .up         (lower_up),
      .address    (look),
      .claims     (lower_claims)
  );
  // The window of the port below is asked for both ways: for what is looked at here while that is looked at, else for the other way.
  assign look = state == LOOK ? tlp_address : address;
  assign claims = lower_claims;
  assign link_enabled = upper_up && lower_up;
  assign up_master = upper_master && lower_master;
  assign peer_master = lower_master;
  assign function_id = {lower_secondary, 8'd0};
  assign port_id = {upper_secondary, NUMBER, 3'd0};

  // Where it goes.
  logic below, posted;
  logic [2:0] group;
  logic is_write, type1, to_upper, to_lower, to_function, from_root, forward, swallow, configure;

  function automatic logic leads(input logic [7:0] bus, input logic [7:0] from, input logic [7:0] upto);
    return from != '0 && bus >= from && bus <= upto;
  endfunction

  // What the header says, as far as no look-up is needed: known in the clock after it was taken, used a clock later.
  es_peb_pkg::tlp_t blank;  // its Completion, but for Completer, status and data
  logic [31:0] port_read;
  logic in_upper, in_function, completes_below, told_below;  // buses

  always_ff @(posedge clk) begin
    group <= es_peb_pkg::group(tlp);
    posted <= es_peb_pkg::class_of(tlp) == es_peb_pkg::POSTED;
    from_root <= tlp.requester[15:8] == '0;
    to_upper <= es_peb_pkg::group(tlp) == es_peb_pkg::CONFIG && !type1 && target[7:0] == '0;
    to_lower <= es_peb_pkg::group(tlp) == es_peb_pkg::CONFIG && type1 && upper_up && upper_secondary != '0 && target == port_id;
    port_read <= type1 ? lower_read : upper_read;
    blank <= es_peb_pkg::completion(tlp);
    in_upper <= leads(target[15:8], upper_secondary, upper_subordinate);
    in_function <= lower_secondary != '0 && lower_secondary <= lower_subordinate && target == {lower_secondary, 8'd0};
    completes_below <= leads(tlp.dw2[31:24], lower_secondary, lower_subordinate);
    told_below <= tlp.kind[2:0] == 3'd3 || (tlp.kind[2:0] == 3'd2 && leads(tlp.dw2[31:24], lower_secondary, lower_subordinate));
  end
  assign is_write = tlp.fmt[1];
  assign type1 = tlp.kind[0];
  assign below = link && upper_up && lower_up;
  assign upper_open = upper_claims && upper_up;
  assign lower_open = lower_claims && below;
  always_comb begin
    case (group)
      es_peb_pkg::CONFIG: to_function = type1 && below && in_upper && !to_lower && in_function;
      es_peb_pkg::COMPLETE: to_function = below && completes_below;
      es_peb_pkg::MESSAGE: to_function = below && told_below;
      default: to_function = upper_open && lower_open;
    endcase
  end
  assign swallow   = group == es_peb_pkg::MESSAGE && tlp.kind[2:0] == 3'd4;
  assign configure = to_upper || to_lower;
  assign forward   = good && to_function && (from_root || group == es_peb_pkg::COMPLETE);

  logic look_now, refuse;
  assign look_now = state == JUDGE;
  assign looking = state == LOOK;
  assign upper_write = look_now && good && from_root && to_upper && is_write && !tlp.ep;
  assign lower_write = look_now && good && from_root && to_lower && is_write && !tlp.ep;
  // A poisoned write to a port is refused (2.7.2.1).
  assign refuse = good && group != es_peb_pkg::COMPLETE && !posted && (!from_root || (configure ? tlp.ep && is_write : !to_function));

  always_ff @(posedge clk) begin
    case (state)
      IDLE: if (s_hdr_valid && s_hdr_ready) state <= LOOK;
      // What is read of the Upstream Port's copy is not what is written to it in this clock.
      LOOK: if (!hold && !heard.valid) state <= JUDGE;
      JUDGE: begin
        state <= forward ? HEAD : DROP;
        if (!forget && (refuse || (good && from_root && configure))) m_answer_valid <= 1'b1;
      end
      HEAD:
      if (flush) state <= DROP;
      else if (m_hdr_ready) state <= PASS;
      PASS:
      if (s_axis_tvalid && m_axis_tready && s_axis_tlast) state <= IDLE;
      else if (flush) state <= DROP;
      default: if (s_axis_tvalid && s_axis_tlast) state <= IDLE;
    endcase
    if (m_answer_valid && m_answer_ready) m_answer_valid <= 1'b0;
    if (upper_write) upstream_id <= target;
    if (heard.valid) upstream_id <= heard.target;
    if (clear_upper) upstream_id <= '0;
    if (rst) begin
      state <= IDLE;
      m_answer_valid <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (look_now) begin
      if (refuse) m_answer <= es_peb_pkg::filled(blank, upstream_id, es_peb_pkg::UNSUPPORTED, 1'b0, 32'd0);
      else
        m_answer <= es_peb_pkg::filled(
            blank, to_upper ? (is_write ? target : upstream_id) : port_id, es_peb_pkg::SUCCESS, !is_write, es_wire_pkg::swap4(port_read)
        );
    end
  end

  assign told = {upper_write, target, register, tlp.first_be, data};
  assign m_hdr_tlp = tlp;
  assign m_hdr_class = es_peb_pkg::class_of(tlp);
  assign m_hdr_relaxed = tlp.attr[1];
  assign m_hdr_fence = group == es_peb_pkg::CONFIG && is_write;
  assign m_hdr_transaction = es_peb_pkg::transaction(tlp);
  assign m_hdr_valid = state == HEAD;

  // A Configuration Request leaves as one of Type 0: bit 0 of its first byte.
  logic first;
  always_ff @(posedge clk) begin
    if (state == HEAD) first <= 1'b1;
    else if (m_axis_tvalid && m_axis_tready) first <= 1'b0;
  end
  always_comb begin
    m_axis_tdata = s_axis_tdata;
    if (first && group == es_peb_pkg::CONFIG) m_axis_tdata[0] = 1'b0;
  end
  assign m_axis_tkeep  = s_axis_tkeep;
  assign m_axis_tlast  = s_axis_tlast;
  assign m_axis_tvalid = s_axis_tvalid && state == PASS;
  assign s_axis_tready = (state == PASS && m_axis_tready) || state == DROP;

  always_ff @(posedge clk) begin
    if (look_now) begin
      if (forward) stat_forwarded <= stat_forwarded + 1'b1;
      if (!good) stat_malformed <= stat_malformed + 1'b1;
      else if (group == es_peb_pkg::COMPLETE) begin
        if (!to_function) stat_unrouted_completions <= stat_unrouted_completions + 1'b1;
      end else if (!from_root) stat_spoofed <= stat_spoofed + 1'b1;
      else if (!configure && !to_function && !swallow) stat_unrouted <= stat_unrouted + 1'b1;
    end
    if (clear) begin
      stat_forwarded <= '0;
      stat_malformed <= '0;
      stat_spoofed <= '0;
      stat_unrouted <= '0;
      stat_unrouted_completions <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      answer_is_kept : assert (!(look_now && m_answer_valid));
      one_write : assert (!(upper_write && heard.valid));
    end
  end
`endif
endmodule
