// Takes packets apart into pieces that lie as they will lie in memory: what a receive module does with a segment (header away, data to any address).
//
// A command says what becomes of the next `c_bytes` bytes of the packet: they are dropped, or come out as beats of which the first begins at byte `c_offset`
// and m_last ends the piece. c_end: the rest of the packet is dropped behind it. Commands of one packet are in its order; a command of no bytes is for c_end alone.
// Latency 1 clock. A clock for each beat in or out, whichever are more.
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

  logic [DATA_W-1:0] kept;  // bytes of the packet that have been taken and not used
  logic [LB-1:0] have;  // how many
  logic past;  // its last beat has been taken
  logic begun;  // the first beat of the command is out
  logic [15:0] done;  // bytes of the command that are out
  logic [15:0] left;
  logic [LB-1:0] at;
  logic [LB:0] room, step, more, from_input;
  logic load, feed, go, ends, finish;

  assign at = begun || c_drop ? '0 : c_offset;
  assign room = (LB + 1)'(B) - {1'b0, at};
  assign left = c_bytes - done;
  assign step = left < 16'(room) ? left[LB:0] : room;
  assign ends = left == 16'(step);
  assign load = m_ready || !m_valid;

  // The step's bytes are those kept, then of the next beat; without another beat what is kept must do.
  assign feed = step > {1'b0, have};
  assign from_input = step - {1'b0, have};
  assign more = s_axis_bytes - from_input;
  assign go = c_valid && (load || c_drop || c_bytes == '0) && (!feed || s_axis_tvalid) && !finish;
  // Behind the last command of a packet: beats go until the last one has.
  assign s_axis_tready = finish || (go && feed);
  assign c_ready = go && ends;

  logic [DATA_W-1:0] laid;
  assign laid = (kept | (s_axis_tdata << {have, 3'b000})) << {at, 3'b000};

  always_ff @(posedge clk) begin
    if (go) begin
      if (feed) kept <= (s_axis_tdata >> {from_input, 3'b000}) & ~({DATA_W{1'b1}} << {more, 3'b000});
      else kept <= kept >> {step, 3'b000};
    end
    if (load) begin
      m_data <= laid;
      m_strb <= ~({B{1'b1}} << step) << at;
      m_last <= ends;
    end
    if (rst || finish || (go && ends && c_end)) kept <= '0;
  end

  always_ff @(posedge clk) begin
    if (load) m_valid <= go && !c_drop && c_bytes != '0;
    if (go) begin
      done  <= ends ? '0 : done + 16'(step);
      begun <= !ends;
      have  <= feed ? more[LB-1:0] : have - step[LB-1:0];
      if (feed && s_axis_tlast) past <= 1'b1;
      if (ends && c_end) begin
        have   <= '0;
        past   <= 1'b0;
        finish <= !(past || (feed && s_axis_tlast));
      end
    end
    if (finish && s_axis_tvalid && s_axis_tlast) finish <= 1'b0;
    if (rst) begin
      m_valid <= 1'b0;
      done <= '0;
      begun <= 1'b0;
      have <= '0;
      past <= 1'b0;
      finish <= 1'b0;
    end
  end
endmodule
