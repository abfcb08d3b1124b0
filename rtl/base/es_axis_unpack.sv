// Takes packets apart into pieces that lie as they will lie in memory: what a receive module does with a segment (header away, data to any address).
//
// A command says what becomes of the next `c_bytes` bytes of the packet: they are dropped, or come out as beats of which the first begins at byte `c_offset`
// and m_last ends the piece. c_end: the rest of the packet is dropped behind it. Commands of one packet are in its order; a command of no bytes is for c_end alone.
// Latency 3 clocks. A clock for each beat in or out, whichever are more.
//
// s_axis_tready hangs on m_ready: the packets come out of a FIFO.
module es_axis_unpack #(
    parameter int DATA_W = 64  // bits of a beat: 64, 128, 256 or 512
) (
    input wire clk,
    input wire rst,

    input  wire  [        DATA_W-1:0] s_axis_tdata,
    input  wire  [$clog2(DATA_W/8):0] s_axis_bytes,   // valid bytes from byte 0 on: all, but in the last beat
    input  wire                       s_axis_tlast,
    input  wire                       s_axis_tvalid,
    output logic                      s_axis_tready,

    input  wire  [$clog2(DATA_W/8)-1:0] c_offset,
    input  wire  [                15:0] c_bytes,
    input  wire                         c_drop,
    input  wire                         c_end,
    input  wire                         c_valid,
    output logic                        c_ready,

    output logic [  DATA_W-1:0] m_data,
    output logic [DATA_W/8-1:0] m_strb,
    output logic                m_last,
    output logic                m_valid,
    input  wire                 m_ready
);
  localparam int B = DATA_W / 8;
  localparam int LB = $clog2(B);

  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check
    $error("es_axis_unpack: DATA_W is not 64, 128, 256 or 512");
  end

  // A command is kept with what its next step takes, so that this is known a clock before. Then the counts of a step, and, a clock later, its bytes.
  logic held, drop, closes, puts;
  logic [  15:0] left;  // bytes of the command behind the step
  logic [LB-1:0] at;
  logic [LB:0] room, step;
  logic ends;  // it is the command's last

  logic [LB-1:0] have;  // bytes that have been taken and not used
  logic past;  // the packet's last beat has been taken
  logic [LB:0] more, from_input;
  logic feed, go, finish, o_ready;

  assign room = (LB + 1)'(B) - (c_drop ? '0 : {1'b0, c_offset});
  assign c_ready = !held || (go && ends);

  always_ff @(posedge clk) begin
    if (c_ready) begin
      held <= c_valid;
      drop <= c_drop;
      closes <= c_end;
      puts <= !c_drop && c_bytes != '0;
      at <= c_drop ? '0 : c_offset;
      step <= c_bytes < 16'(room) ? c_bytes[LB:0] : room;
      ends <= c_bytes <= 16'(room);
      left <= c_bytes - 16'(room);
    end else if (go) begin
      at   <= '0;
      step <= left < 16'(B) ? left[LB:0] : (LB + 1)'(B);
      ends <= left <= 16'(B);
      left <= left - 16'(B);
    end
    if (rst) held <= 1'b0;
  end

  // The step's bytes are those kept, then of the next beat; without another beat what is kept must do.
  assign feed = step > {1'b0, have};
  assign from_input = step - {1'b0, have};
  assign more = s_axis_bytes - from_input;
  assign go = held && o_ready && (!feed || s_axis_tvalid) && !finish;
  // Behind the last command of a packet: beats go until the last one has.
  assign s_axis_tready = finish || (go && feed);

  always_ff @(posedge clk) begin
    if (go) begin
      have <= feed ? more[LB-1:0] : have - step[LB-1:0];
      if (feed && s_axis_tlast) past <= 1'b1;
      if (ends && closes) begin
        have   <= '0;
        past   <= 1'b0;
        finish <= !(past || (feed && s_axis_tlast));
      end
    end
    if (finish && s_axis_tvalid && s_axis_tlast) finish <= 1'b0;
    if (rst) begin
      have   <= '0;
      past   <= 1'b0;
      finish <= 1'b0;
    end
  end

  // The step: how far the beat's bytes move, up to lie behind those kept, and down to be kept.
  logic o_valid, o_puts, o_feed, o_clear, o_last, load;
  logic [DATA_W-1:0] o_data, kept;
  logic [LB:0] o_up, o_down;
  logic [LB-1:0] o_at, o_step;
  logic [B-1:0] o_strb;

  assign load = m_ready || !m_valid;
  assign o_ready = !o_valid || !o_puts || load;

  always_ff @(posedge clk) begin
    if (o_ready) begin
      o_valid <= go;
      o_puts <= puts;
      o_feed <= feed;
      o_clear <= ends && closes;
      o_last <= ends;
      o_data <= s_axis_tdata;
      o_up <= {1'b0, have} + {1'b0, at};
      o_down <= from_input;
      o_at <= at;
      o_step <= step[LB-1:0];
      o_strb <= ~({B{1'b1}} << step) << at;
    end
    if (o_valid && o_ready) begin
      // Bytes behind a packet's last beat are kept by nobody: no beat of it follows.
      kept <= o_clear ? '0 : o_feed ? o_data >> {o_down, 3'b000} : kept >> {o_step, 3'b000};
    end
    if (load) begin
      m_data  <= (kept << {o_at, 3'b000}) | (o_feed ? o_data << {o_up, 3'b000} : '0);
      m_strb  <= o_strb;
      m_last  <= o_last;
      m_valid <= o_valid && o_puts;
    end
    if (rst) begin
      o_valid <= 1'b0;
      m_valid <= 1'b0;
      kept <= '0;
    end
  end
endmodule
