// FENCE (docs/rnic.md, 2): when nothing that began before uses an entry of the SMT, or a translation of it, any more.
//
// First both modules that translate have to be between two of their tasks. Then what they had asked memory for until then has to be done: data of segments that leave
// have to be read; data of segments that came have to be with the write side, and then in memory. All are counted, and serial numbers compared.
module es_rnic_fence (
    input wire clk,
    input wire rst,

    input  wire  start,   // again before it is done: begins anew
    output logic waiting,

    input wire        send_free,     // the Send Module translates nothing
    input wire        send_asked,    // pieces: asked of memory, and come
    input wire        send_ended,
    input wire        receive_free,
    input wire        put,           // pieces: placed, taken by the write side
    input wire        put_taken,
    input wire [15:0] asked,         // bursts of the write side so far, asked and answered
    input wire [15:0] answered
);
  typedef enum logic [1:0] {
    Done,
    Free,   // both have to have been between two tasks
    Moved,  // reads ended, pieces taken
    Stored  // writes answered
  } state_t;
  state_t state;

  logic send_seen, receive_seen;
  logic [15:0] reads, reads_ended, puts, puts_taken, until_read, until_put, until_answered;
  logic [15:0] read_lag, put_lag, answer_lag;

  assign waiting = state != Done;
  assign read_lag = reads_ended - until_read;
  assign put_lag = puts_taken - until_put;
  assign answer_lag = answered - until_answered;

  always_ff @(posedge clk) begin
    reads <= reads + 16'(send_asked);
    reads_ended <= reads_ended + 16'(send_ended);
    puts <= puts + 16'(put);
    puts_taken <= puts_taken + 16'(put_taken);
    case (state)
      Free: begin
        send_seen <= send_seen || send_free;
        receive_seen <= receive_seen || receive_free;
        if (send_seen && receive_seen) begin
          until_read <= reads;
          until_put <= puts;
          state <= Moved;
        end
      end
      Moved:
      if (!read_lag[15] && !put_lag[15]) begin
        until_answered <= asked;
        state <= Stored;
      end
      Stored:  if (!answer_lag[15]) state <= Done;
      default: ;
    endcase
    if (start) begin
      send_seen <= 1'b0;
      receive_seen <= 1'b0;
      state <= Free;
    end
    if (rst) begin
      state <= Done;
      reads <= '0;
      reads_ended <= '0;
      puts <= '0;
      puts_taken <= '0;
    end
  end
endmodule
