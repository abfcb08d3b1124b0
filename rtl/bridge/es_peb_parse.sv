// Bodies of Data frames taken apart: TLPs of the attached Function's stream as packets, control messages as what they say.
//
// A body is a row of records (docs/wire.md, section 6). Parts of a record that was split are joined. A record of 3 DDP or 4 read-ahead, or of another stream than the
// Function's, is dropped and counted (`stat_stray`), the latter unless it is the other Function's, of which another one of these takes care. What no good peer sends raises
// `broken` until `rst`, and nothing more is taken apart: the session is to be closed. `forget` drops the TLP that has begun.
//
// A clock a record and one a beat, one more for a TLP whose end needs a beat of its own. Latency 4 clocks from a record's header to its first beat.
module es_peb_parse #(
    parameter int DATA_W  = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int STREAMS = 16   // streams that a session can have, 2 to 256
) (
    input wire clk,
    input wire rst,   // of a session, too
    input wire clear, // the counters

    input wire         attached,      // a Function has `stream`
    input wire [ 15:0] stream,
    input wire         forget,
    input wire [255:0] function_name, // of the Function, its first byte on top

    // The other Function of the box, if there is one.
    input wire         other,
    input wire [ 15:0] other_stream,
    input wire [255:0] other_name,    // 0: there is none

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    // A control message.
    output logic        m_ctl_own,      // on the Function's stream, otherwise on stream 0
    output logic [ 7:0] m_ctl_code,
    output logic [ 4:0] m_ctl_dws,      // whole DWs that it has, of those on stream 0; 15 are all from 15 on
    output logic [ 7:0] m_ctl_status,   // of an Attached
    output logic        m_ctl_named,    // an Attach that asks for our name
    output logic        m_ctl_other,    // for the other's
    output logic [15:0] m_ctl_domain,   // of a Domain
    output logic [15:0] m_ctl_stream,
    output logic [15:0] m_ctl_payload,  // grants of an Attach, bytes
    output logic [15:0] m_ctl_read,
    output logic        m_ctl_valid,
    input  wire         m_ctl_ready,

    output logic        broken,
    output logic [31:0] stat_stray
);
  localparam int N = DATA_W / 32;  // DW of a beat
  localparam int LN = $clog2(N);
  localparam int LB = $clog2(DATA_W / 8);
  localparam int SW = $clog2(STREAMS);
  localparam int MOST = es_peb_pkg::MAX_TLP_BYTES;

  if ((DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) || STREAMS < 2 || STREAMS > 256) begin : gen_check
    $error("es_peb_parse: DATA_W is not 64, 128, 256 or 512, or STREAMS not 2 to 256");
  end

  logic [  DATA_W-1:0] in_data;
  logic [DATA_W/8-1:0] in_keep;
  logic in_last, in_valid, in_ready;

  /* verilator lint_off PINCONNECTEMPTY */
  es_axis_skid #(
      .DATA_W(DATA_W)
  ) front (
      .clk,
      .rst,
      .s_axis_tdata,
      .s_axis_tkeep,
      .s_axis_tuser (1'b0),
      .s_axis_tlast,
      .s_axis_tvalid,
      .s_axis_tready,
      .m_axis_tdata (in_data),
      .m_axis_tkeep (in_keep),
      .m_axis_tuser (),
      .m_axis_tlast (in_last),
      .m_axis_tvalid(in_valid),
      .m_axis_tready(in_ready)
  );
  /* verilator lint_on PINCONNECTEMPTY */

  // Beats of the body that have come and are not used up, the first one in front; `words` are their DWs from the first one that is not used. There is room
  // for three, so that whether one is taken does not hang on what is used in the same clock.
  logic [DATA_W-1:0] beat_0, beat_1, beat_2;
  logic [1:0] beats;
  logic [LN-1:0] used;  // DWs of the first beat
  logic [2*DATA_W-1:0] words;
  logic [LN+2:0] have, step, in_dws;
  logic past;  // the body's last beat is among them
  logic in_odd;  // it ends within a DW
  logic take, pop;

  always_comb begin
    in_dws = '0;
    in_odd = 1'b0;
    for (int i = 0; i < N; i++) begin
      if (in_keep[4*i]) in_dws = (LN + 3)'(i + 1);
      if (in_keep[4*i] && !in_keep[4*i+3]) in_odd = 1'b1;
    end
  end

  // The record at hand.
  es_wire_pkg::record_t record;
  logic inside_data;  // behind its header
  logic [15:0] left;  // bytes of its payload
  logic is_last, wanted, is_control, own, zero;  // zero: on stream 0
  logic go, ends;
  logic [SW-1:0] at;
  // Of its next beat, known before the beat is: DWs, bytes, and whether it is the record's last.
  logic [LN+2:0] need;
  logic [LB:0] need_bytes;
  logic final_beat;

  assign record = es_wire_pkg::swap8(words[63:0]);
  assign at = record.stream[SW-1:0];

  // What is known of each stream: the place of the next part, and the record that has begun.
  logic [15:0] expected[STREAMS];
  logic [STREAMS-1:0] begun;
  logic [7:0] kinds[STREAMS];
  logic taking;  // the TLP that has begun on the Function's stream is ours to take
  logic [15:0] taken;  // bytes of it

  logic shape_good, place_good, is_own, take_it;
  assign is_own = attached && record.stream == stream;
  assign shape_good = record.kind >= es_wire_pkg::TLP && record.kind <= 8'd4 && record.reserved == '0 && record.length <= 16'(MOST) &&
      record.stream < 16'(STREAMS);
  assign place_good = record.place == expected[at] && record.first != begun[at] && (record.first || kinds[at] == record.kind) &&
      (record.last || record.length[1:0] == 2'b00) && (record.first || !record.last || record.length != '0);
  assign take_it = record.kind == es_wire_pkg::TLP && is_own && (record.first || taking);

  logic pack_ready, ctl_ready, piece, head_go, can, cut, wrong, whole;
  // A message of a Function's stream may wait for one that is not taken; so may all behind it.
  assign head_go = !inside_data && have >= 2 && !broken && ctl_ready;
  assign can = inside_data && have >= need && !broken;
  assign piece = can && wanted;
  assign go = can && (!wanted || pack_ready);
  assign ends = go && final_beat;
  assign step = go ? need : head_go ? (LN + 3)'(2) : '0;
  assign in_ready = broken || (!past && beats != 2'd3);
  assign take = in_valid && in_ready;

  assign words = {beat_1, beat_0} >> {used, 5'd0};
  assign pop = (LN + 3)'(used) + step >= (LN + 3)'(N);
  always_ff @(posedge clk) begin
    if (pop) beat_0 <= beats == 2'd1 ? in_data : beat_1;
    else if (beats == 2'd0) beat_0 <= in_data;
    if (pop) beat_1 <= beats == 2'd2 ? in_data : beat_2;
    else if (beats == 2'd1) beat_1 <= in_data;
    if (beats == 2'd2) beat_2 <= in_data;
  end

  // A body ends within a record: too little is there, or all of it is used and the record goes on.
  assign whole = go ? final_beat : record.length == '0;
  assign cut   = past && (inside_data ? have < need : have == 1);

  // What is left of the record, a beat from now.
  logic [15:0] after;
  assign after = inside_data ? left - 16'(4 * N) : record.length;

  always_ff @(posedge clk) begin
    have  <= (have + (take ? in_dws : '0)) - step;
    beats <= beats + 2'(take) - 2'(pop);
    used  <= used + step[LN-1:0];
    if (take) past <= in_last;
    else if (past && step == have) begin
      past  <= 1'b0;
      beats <= '0;
      used  <= '0;
    end
    if (head_go) begin
      inside_data <= record.length != '0;
      is_last <= record.last;
      is_control <= record.kind == es_wire_pkg::CONTROL;
      own <= is_own;
      zero <= record.stream == '0;
      wanted <= take_it;
      expected[at] <= record.place + 1'b1;
      begun[at] <= !record.last;
      kinds[at] <= record.kind;
      if (take_it) begin
        taking <= !record.last;
        taken  <= (record.first ? 16'd0 : taken) + record.length;
      end
    end
    if (head_go || go) begin
      left <= after;
      final_beat <= after <= 16'(4 * N);
      need <= after < 16'(4 * N) ? (LN + 3)'((after[LB:0] + (LB + 1)'(3)) >> 2) : (LN + 3)'(N);
      need_bytes <= after < 16'(4 * N) ? after[LB:0] : (LB + 1)'(4 * N);
    end
    if (ends) inside_data <= 1'b0;
    if (forget) begin
      wanted <= 1'b0;
      taking <= 1'b0;
    end
    // Told a clock later: what is wrong may begin to be taken, and is forgotten with the session.
    wrong <= (head_go && (!shape_good || !place_good)) || cut || (past && step == have && (go || head_go) && !whole) || (take && in_odd);
    if (wrong || taken > 16'(MOST)) broken <= 1'b1;
    if (broken || rst) begin
      have  <= '0;
      beats <= '0;
      used  <= '0;
    end
    if (rst) begin
      past <= 1'b0;
      inside_data <= 1'b0;
      wanted <= 1'b0;
      taking <= 1'b0;
      taken <= '0;
      begun <= '0;
      wrong <= 1'b0;
      broken <= 1'b0;
      for (int i = 0; i < STREAMS; i++) expected[i] <= '0;
    end
  end

  logic is_known;
  assign is_known = is_own || (other && record.stream == other_stream);
  always_ff @(posedge clk) begin
    if (head_go && shape_good && record.first && !(record.kind == es_wire_pkg::TLP ? is_known : record.kind == es_wire_pkg::CONTROL &&
        (is_known || record.stream == '0)))
      stat_stray <= stat_stray + 1'b1;
    if (clear) stat_stray <= '0;
  end

  // Pieces wait here, so that what is taken of a body does not hang on what the packer takes.
  logic [DATA_W-1:0] queued_data;
  logic [LB:0] queued_bytes;
  logic queued_last, queued_valid, queued_ready;

  es_fifo #(
      .WIDTH(DATA_W + LB + 2),
      .DEPTH(4)
  ) pieces (
      .clk,
      .rst    (rst || forget),
      .s_data ({is_last && final_beat, need_bytes, words[DATA_W-1:0]}),
      .s_valid(piece),
      .s_ready(pack_ready),
      .m_data ({queued_last, queued_bytes, queued_data}),
      .m_valid(queued_valid),
      .m_ready(queued_ready)
  );

  es_axis_pack #(
      .DATA_W(DATA_W)
  ) pack (
      .clk,
      .rst(rst || forget),
      .s_data(queued_data),
      .s_offset('0),
      .s_bytes(queued_bytes),
      .s_last(queued_last),
      .s_valid(queued_valid),
      .s_ready(queued_ready),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );

  // Control messages: of stream 0 the first 40 bytes, of the Function's the first 4. Each may be split, beside the other.
  localparam int KEPT = 10;
  logic [32*KEPT-1:0] message;
  logic [7:0] own_code;
  logic own_any;
  logic [4:0] dws;  // of the message on stream 0, up to 16
  logic told, told_own;
  logic ragged;  // it ends within a DW

  always_ff @(posedge clk) begin
    told <= 1'b0;
    if (head_go && record.kind == es_wire_pkg::CONTROL && record.first) begin
      if (record.stream == '0) dws <= '0;
      else if (is_own) own_any <= 1'b0;
    end
    if (go && is_control && zero) begin
      for (int i = 0; i < KEPT; i++) begin
        for (int j = 0; j < N; j++) if (5'(i) == dws + 5'(j) && j < int'(need)) message[32*i+:32] <= words[32*j+:32];
      end
      ragged <= final_beat && need_bytes[1:0] != 2'b00;
      dws <= dws + 5'(need) > 5'd15 ? 5'd15 : dws + 5'(need);
    end
    if (go && is_control && own && !own_any) begin
      own_any <= 1'b1;
      own_code <= words[7:0];
      m_ctl_domain <= {words[23:16], words[31:24]};
    end
    if (ends && is_last && is_control && (zero || (own && attached))) begin
      told <= 1'b1;
      told_own <= own;
    end
    if (rst) begin
      told <= 1'b0;
      dws <= '0;
      own_any <= 1'b0;
    end
  end

  // Byte 0 on top.
  logic [32*KEPT-1:0] turned;
  always_comb for (int i = 0; i < 4 * KEPT; i++) turned[8*(4*KEPT-1-i)+:8] = message[8*i+:8];

  assign m_ctl_own = told_own;
  assign m_ctl_code = told_own ? own_code : turned[319:312];
  assign m_ctl_dws = dws - 5'(ragged && dws != 5'd15);
  assign m_ctl_status = turned[311:304];
  assign m_ctl_named = turned[255:0] == function_name;
  assign m_ctl_other = turned[255:0] == other_name && other_name != '0;
  assign {m_ctl_stream, m_ctl_payload, m_ctl_read} = turned[303:256];

  // One message at a time: the next record waits until it is taken.
  always_ff @(posedge clk) begin
    if (m_ctl_ready) m_ctl_valid <= 1'b0;
    if (told && !wrong && !broken) m_ctl_valid <= 1'b1;
    if (rst) m_ctl_valid <= 1'b0;
  end
  assign ctl_ready = !told && !m_ctl_valid;

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      no_more_than_came : assert (step <= have);
      none_is_written_over : assert (broken || !take || beats != 2'd3);
    end
  end
`endif
endmodule
