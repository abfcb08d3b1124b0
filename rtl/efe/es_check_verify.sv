// Lets through the frames whose form and check are good, without check and padding, and counts the others. Nothing of a bad frame comes out.
//
// Takes a beat in every clock, as a MAC hands them over, and has no s_axis_tready; `s_axis_tuser` with the last beat says that the MAC found the
// frame bad. A frame that finds no room is dropped and counted. Refused are other versions and kinds than wire.md's 1 to 5, sealed frames and frames whose
// body is not checked. Latency from a frame's last beat to its first es_crc32c_pkg::latency(DATA_W) + 6 clocks.
module es_check_verify #(
    parameter int DATA_W = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int DEPTH  = 512  // beats of all frames that wait, a power of two
) (
    input wire clk,
    input wire rst,

    input wire [  DATA_W-1:0] s_axis_tdata,
    input wire [DATA_W/8-1:0] s_axis_tkeep,
    input wire                s_axis_tuser,
    input wire                s_axis_tlast,
    input wire                s_axis_tvalid,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    output logic [31:0] stat_good,     // frames let through
    output logic [31:0] stat_refused,  // frames too short, of another version, kind or flags, or bad by the MAC
    output logic [31:0] stat_check,    // frames whose check is wrong
    output logic [31:0] stat_full      // frames that found no room
);
  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_check_verify: DATA_W is not 64, 128, 256 or 512");
  end

  localparam int BYTES = DATA_W / 8;
  localparam int CW = $clog2(BYTES);
  localparam int LATENCY = es_crc32c_pkg::latency(DATA_W);
  localparam int LW = 18;  // bits of a count of bytes with its sign

  typedef struct packed {
    logic [DATA_W-1:0] data;  // covered by the check, zeros behind it
    logic [CW:0] bytes;  // of data
    logic [31:0] check;  // that came behind the data
    logic ends;  // this beat has the last byte of data
    logic last;  // of what the MAC gave
    logic refused;
    logic valid;
  } beat_t;

  // What the MAC gives, registered twice: what the first beat says of the frame's length is known beside it.
  logic [DATA_W-1:0] data_0, data, past;
  logic [BYTES-1:0] keep_0, keep;
  logic user_0, last_0, valid_0, first_0, user, last, valid, first;

  // Bytes of the frame from this beat on, of those that the check covers.
  logic signed [LW-1:0] left, stretch;
  logic [15:0] body;
  logic sack, sealed, header_check;  // of the frame's flags
  logic odd_form, was_refused, refused;

  assign body = {data_0[23:16], data_0[31:24]};
  assign sack = data_0[8];
  assign sealed = data_0[13];
  assign header_check = data_0[15];
  assign stretch = signed'(LW'(body)) + (sack ? signed'(LW'(80)) : signed'(LW'(48)));

  always_ff @(posedge clk) begin
    data_0  <= s_axis_tdata;
    keep_0  <= s_axis_tkeep;
    user_0  <= s_axis_tuser;
    last_0  <= s_axis_tlast;
    valid_0 <= s_axis_tvalid;
    if (valid_0) begin
      first_0 <= last_0;
      first <= first_0;
      data <= data_0;
      keep <= keep_0;
      user <= user_0;
      last <= last_0;
      if (first_0) left <= stretch;
      else if (left > -LW'(8)) left <= left - LW'(BYTES);
      odd_form <= data_0[7:4] != es_wire_pkg::VERSION || data_0[3:0] == 4'd0 || data_0[3:0] > es_wire_pkg::CLOSE || sealed || header_check;
    end
    valid <= valid_0;
    if (valid) past <= data;
    if (rst) begin
      valid_0 <= 1'b0;
      valid   <= 1'b0;
      first_0 <= 1'b1;
    end
  end

  logic [CW:0] came, bytes;
  logic [DATA_W-1:0] covered;
  logic [2*DATA_W-1:0] two;
  logic signed [LW-1:0] over;  // bytes of the check in this beat and before it, if 1 to 4 of them end in it
  logic check_ends, short_frame;

  always_comb begin
    came = '0;
    for (int i = 0; i < BYTES; i++) if (keep[i]) came = came + 1'b1;
    if (left <= 0) bytes = '0;
    else if (left >= LW'(BYTES)) bytes = (CW + 1)'(BYTES);
    else bytes = left[CW:0];
    for (int i = 0; i < BYTES; i++) covered[8*i+:8] = (CW + 1)'(i) < bytes ? data[8*i+:8] : 8'd0;
  end

  assign two = {data, past};
  assign over = left + LW'(4);
  assign check_ends = over > 0 && over <= LW'(BYTES);
  assign short_frame = over > signed'(LW'(came));
  assign refused = (first ? odd_form : was_refused) || (last && (short_frame || user));

  logic [31:0] check, check_now, check_kept;
  logic [CW:0] check_at;  // of its first byte in `two`

  assign check_at  = (CW + 1)'(BYTES) + left[CW:0];
  assign check_now = es_wire_pkg::swap4(32'(two >> {check_at, 3'd0}));

  beat_t beat[LATENCY+1];
  logic crc_first;

  always_ff @(posedge clk) begin
    for (int i = 1; i <= LATENCY; i++) beat[i] <= beat[i-1];
    beat[0].data <= covered;
    beat[0].bytes <= bytes;
    beat[0].check <= check_ends ? check_now : check_kept;
    beat[0].ends <= left > 0 && left <= LW'(BYTES);
    beat[0].last <= last;
    beat[0].refused <= refused;
    beat[0].valid <= valid;
    crc_first <= first;
    if (valid) begin
      was_refused <= refused;
      if (check_ends) check_kept <= check_now;
    end
    if (rst) for (int i = 0; i <= LATENCY; i++) beat[i].valid <= 1'b0;
  end

  logic [CW-1:0] zeros;
  assign zeros = -beat[0].bytes[CW-1:0];

  es_crc32c #(
      .DATA_W(DATA_W)
  ) crc (
      .clk,
      .en(1'b1),
      .data(beat[0].data),
      .valid(beat[0].valid && beat[0].bytes != '0),
      .first(crc_first),
      .pad(zeros),
      .check
  );

  // At the end of the pipeline the check over what came is known, and with the last beat what has to be done.
  beat_t at;
  logic [31:0] sum, sum_kept;
  logic was_full, full, ends_frame, commit, drop;
  logic [BYTES-1:0] at_keep;

  assign at = beat[LATENCY];
  assign sum = at.ends ? check : sum_kept;
  assign ends_frame = at.valid && at.last;
  assign commit = ends_frame && !at.refused && sum == at.check && !full && !was_full;
  assign drop = ends_frame && !commit;
  assign at_keep = ~({BYTES{1'b1}} << at.bytes);

  always_ff @(posedge clk) begin
    if (at.valid) begin
      if (at.ends) sum_kept <= check;
      was_full <= !at.last && (was_full || full);
    end
    if (ends_frame) begin
      if (at.refused) stat_refused <= stat_refused + 1'b1;
      else if (sum != at.check) stat_check <= stat_check + 1'b1;
      else if (full || was_full) stat_full <= stat_full + 1'b1;
      else stat_good <= stat_good + 1'b1;
    end
    if (rst) begin
      was_full <= 1'b0;
      stat_good <= '0;
      stat_refused <= '0;
      stat_check <= '0;
      stat_full <= '0;
    end
  end

  es_fifo_commit #(
      .WIDTH(DATA_W + BYTES + 1),
      .DEPTH(DEPTH)
  ) frames (
      .clk,
      .rst,
      .s_data  ({at.ends, at_keep, at.data}),
      .s_valid (at.valid && at.bytes != '0),
      .s_commit(commit),
      .s_drop  (drop),
      .s_full  (full),
      .m_data  ({m_axis_tlast, m_axis_tkeep, m_axis_tdata}),
      .m_valid (m_axis_tvalid),
      .m_ready (m_axis_tready)
  );
endmodule
