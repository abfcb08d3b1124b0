// The window of a session from round-trip times, as docs/session.md says of EFE, in fixed point. Both modes use it.
//
//   base   least round trip of 4 to 9 s            T = base + QUEUE_NS
//   pred   max(base, rtt * (1 + slope)), slope the smoothed change of the round trip over time
//   start  one frame more for each that arrives, until pred > T, rtt > base + QUEUE_NS / 2
//   run    W = .1 W + .9 (W_then * T / pred + increase); without much of a queue it grows, up to a quarter
//   loss   only if rtt > base + 2 QUEUE_NS: .7 W, once a round trip.  Timeout: W / 2
//
// A sample takes about 90 clocks; those that come meanwhile are left out. `window` counts 1/256 frames inside, whole frames outside.
// Not here: pacing, and the noise of peers that are processes, which has to be in QUEUE_NS.
module es_efe_rate #(
    parameter int SLOTS      = 16,        // the largest window, frames, at most 128
    parameter int QUEUE_NS   = 88_560,    // queue aimed at, ns: .9 of 8 full frames at the link's rate (1538 bytes at 1 Gbit/s)
    parameter int RTO_MIN_NS = 1_000_000  // least margin of the retransmission timeout over the round trip, ns
) (
    input wire clk,
    input wire rst,  // of a session, too

    input wire [31:0] now,           // ns
    input wire        sample_valid,
    input wire [31:0] sample,        // round-trip time, ns
    input wire [31:0] sample_sent,   // when the frame had left, ns
    input wire [31:0] receiver_cap,  // bytes

    input wire acked,
    input wire timeout,
    input wire loss,

    output logic [15:0] window,  // frames
    output logic [31:0] rtt,
    output logic [31:0] base,
    output logic [31:0] srtt,
    output logic [31:0] rto
);
  localparam int UNKNOWN_NS = 100_000;  // what a round trip is taken for at first
  localparam int AIM = QUEUE_NS;
  localparam logic [31:0] HALF = AIM / 2;
  localparam logic [31:0] ROOM_SCALE = (64 << 16) / (AIM / 2);  // room of 1 is 64 / 256 of growth

  if (SLOTS > 128 || SLOTS < 4 || QUEUE_NS < 64 || QUEUE_NS > 8_000_000) begin : gen_check
    $error("es_efe_rate: SLOTS is not 4 to 128, or QUEUE_NS not 64 to 8000000");
  end

  // The least of this span and of the one before; a span ends when the time wraps.
  logic [31:0] least, least_before;
  logic top, known, start_phase;
  logic [31:0] var4;  // four deviations

  logic [ 3:0] step;
  logic [31:0] last_rtt, last_sent, taken_sent, span, deviation;
  logic [23:0] change;
  logic rising, ready;
  logic signed [10:0] slope, slope_new;  // 1/256
  logic [31:0] predicted, target, gap;
  logic [16:0] frames;  // the window, 1/256 frames
  logic [15:0] ratio;  // T / predicted, 1/256
  logic [16:0] window_then;
  logic [31:0] decided;
  logic [15:0] room;

  // The window at the last few moments, so that a queue corrects the window that made it: eight, a quarter of a round trip apart.
  logic [16:0] was[8];
  logic [31:0] was_at;
  logic was_long;  // a quarter of a round trip has gone since
  logic deep, decided_long;  // far more of a queue than is aimed at; a round trip has gone since the last decision

  logic start, busy, done;
  logic [31:0] dividend, divisor, quotient;

  es_divide #(
      .WIDTH(32)
  ) divide (
      .clk,
      .rst,
      .start,
      .dividend,
      .divisor,
      .quotient,
      .busy,
      .done
  );

  localparam logic [3:0] WAIT = 4'd0, SLOPE = 4'd1, SCALE = 4'd2, PREDICT = 4'd3, RATIO = 4'd4, ROOM = 4'd5;
  localparam logic [3:0] GROW = 4'd6, MULTIPLY = 4'd7, ADD = 4'd8, WEIGH = 4'd9, SUM = 4'd10, SETTLE = 4'd11;

  logic [16:0] most;
  logic [24:0] cap_frames;

  assign cap_frames = {4'd0, receiver_cap[31:11]};
  always_ff @(posedge clk) begin
    most <= 17'(SLOTS * 256);
    if (receiver_cap != es_wire_pkg::NO_CAP && cap_frames < 25'(SLOTS)) most <= {cap_frames[8:0], 8'd0};
  end

  // .2 of the root of the window, 1/256 frames, by the window's leading bit.
  logic [16:0] increase;
  always_ff @(posedge clk) begin
    increase <= 17'd51;
    for (int i = 1; i < 4; i++) if (frames[8+2*i-:2] != 2'd0) increase <= 17'(51 << i);
  end

  // Products, in parts of 18 bits at most and a clock each; what is compared, a clock late.
  /* verilator lint_off UNUSEDSIGNAL */
  logic [33:0] grown;
  logic signed [27:0] scaled_low, scaled_high;
  logic signed [43:0] scaled;  // rtt * slope
  logic [31:0] corrected;
  logic [35:0] missing_low, missing_high;
  logic [47:0] missing;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [31:0] aimed, kept, weighed, a_tenth;  // a tenth is 26 / 256 here
  logic [23:0] spare;
  logic again;  // the second clock of a step

  always_ff @(posedge clk) begin
    scaled_low <= $signed({1'b0, rtt[15:0]}) * slope;
    scaled_high <= $signed({1'b0, rtt[31:16]}) * slope;
    scaled <= 44'(scaled_low) + (44'(scaled_high) <<< 16);
    missing_low <= 36'(spare[11:0]) * 36'(ROOM_SCALE[17:0]);
    missing_high <= 36'(spare[23:12]) * 36'(ROOM_SCALE[17:0]);
    grown <= 34'(window_then) * 34'(ratio);
    aimed <= 32'(grown >> 8) + 32'(increase);
    a_tenth <= (aimed << 4) + (aimed << 3) + (aimed << 1);
    weighed <= (aimed << 8) - a_tenth;
    kept <= (32'(frames) << 4) + (32'(frames) << 3) + (32'(frames) << 1);
    deep <= rtt > base + (2 * AIM);
  end
  assign spare = 24'(HALF) - gap[23:0];
  assign missing = 48'(missing_low) + {missing_high, 12'd0};
  assign corrected = kept + weighed;

  always_ff @(posedge clk) begin
    start <= 1'b0;
    top <= now[31];
    was_long <= now - was_at > {2'd0, srtt[31:2]};
    decided_long <= now - decided > srtt;
    if (top && !now[31]) begin
      least <= rtt;
      least_before <= least;
    end
    if (was_long) begin
      was_long <= 1'b0;
      was_at   <= now;
      was[0]   <= frames;
      for (int i = 1; i < 8; i++) was[i] <= was[i-1];
    end

    if (start_phase && acked) frames <= frames + 17'd256;

    case (step)
      WAIT:
      if (sample_valid && !busy) begin
        ready <= 1'b0;
        rtt <= sample;
        last_rtt <= rtt;
        taken_sent <= sample_sent;
        last_sent <= taken_sent;
        known <= 1'b1;
        if (!known) begin
          least <= sample;
          least_before <= sample;
          srtt <= sample;
          base <= sample;
          var4 <= {sample[30:0], 1'b0};
        end else begin
          if (sample < least) least <= sample;
          srtt <= srtt - (srtt >> 3) + (sample >> 3);
          deviation <= sample > srtt ? sample - srtt : srtt - sample;
          step <= SLOPE;
        end
      end
      SLOPE: begin
        // The change since the sample before, over the time between the two; a shift keeps 8 bits of fraction.
        base   <= least < least_before ? least : least_before;
        rising <= rtt > last_rtt;
        change <= 24'(rtt > last_rtt ? rtt - last_rtt : last_rtt - rtt);
        ready  <= 1'b1;
        if (!ready) var4 <= var4 - (var4 >> 2) + deviation;
        else if (!start && !busy && !done) begin
          if ($signed(taken_sent - last_sent) > 0) begin
            dividend <= {change, 8'd0};
            divisor <= span;
            start <= 1'b1;
          end else step <= WAIT;
        end
        if (done) begin
          slope <= slope + ((slope_new - slope) >>> 2);
          step  <= SCALE;
        end
      end
      SCALE: begin
        again <= !again;
        if (again) step <= PREDICT;
      end
      PREDICT: begin
        predicted <= rtt + scaled[39:8];
        target <= base + AIM;
        step <= RATIO;
      end
      RATIO: begin
        if (predicted < base || predicted[31]) predicted <= base;
        else if (!start && !busy && !done) begin
          dividend <= {target[23:0], 8'd0};
          divisor <= predicted;
          start <= 1'b1;
        end
        if (done) begin
          ratio <= quotient > 32'd512 ? 16'd512 : (quotient < 32'd64 ? 16'd64 : quotient[15:0]);
          gap   <= predicted - base;
          step  <= ROOM;
        end
      end
      ROOM: begin
        again <= !again;
        room  <= missing[31:16];
        if (again) step <= GROW;
      end
      GROW: begin
        // Hardly a queue: there is room.
        if (gap < HALF && ratio < 16'd256 + room) ratio <= 16'd256 + room;
        window_then <= was[3];
        step <= MULTIPLY;
      end
      MULTIPLY: step <= ADD;
      ADD: step <= WEIGH;
      WEIGH: step <= SUM;
      SUM: step <= SETTLE;
      default: begin
        step <= WAIT;
        if (start_phase) begin
          if (predicted > target && rtt > base + (AIM / 2)) start_phase <= 1'b0;
        end else frames <= corrected[24:8];
      end
    endcase

    if (timeout) begin
      frames <= {1'b0, frames[16:1]};
      start_phase <= 1'b0;
    end else if (loss && known && deep && decided_long) begin
      frames <= 17'((25'(frames) * 25'd180) >> 8);
      decided <= now;
      decided_long <= 1'b0;
      start_phase <= 1'b0;
    end else if (frames > most) begin
      frames <= most;
      start_phase <= 1'b0;
    end else if (frames < 17'd512 && most >= 17'd512) frames <= 17'd512;

    if (rst) begin
      step <= WAIT;
      again <= 1'b0;
      known <= 1'b0;
      start_phase <= 1'b1;
      frames <= 17'd1024;
      slope <= '0;
      rtt <= UNKNOWN_NS;
      base <= UNKNOWN_NS;
      srtt <= UNKNOWN_NS;
      least <= UNKNOWN_NS;
      least_before <= UNKNOWN_NS;
      var4 <= (2 * UNKNOWN_NS);
      taken_sent <= now;
      decided <= now;
      was_at <= now;
      for (int i = 0; i < 8; i++) was[i] <= 17'd1024;
    end
  end

  // The slope within -.5 and 1.
  assign span = taken_sent - last_sent;
  always_comb begin
    if (rising) slope_new = quotient > 32'd256 ? 11'sd256 : signed'({1'b0, quotient[9:0]});
    else slope_new = quotient > 32'd128 ? -11'sd128 : -signed'({1'b0, quotient[9:0]});
  end

  assign window = frames[16:8] == '0 ? 16'd1 : {7'd0, frames[16:8]};

  always_ff @(posedge clk) rto <= srtt + (var4 > RTO_MIN_NS ? var4 : RTO_MIN_NS);
endmodule
