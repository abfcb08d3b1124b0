// The session around the two halves of es_efe: handshake, what each frame that comes is for, which frame leaves next, life and death.
//
// While `open`, the active side greets until it is answered, the passive side listens. `up` while a session lives; a new one begins by itself with `fresh` as
// its epoch. One session at a time: while one lives, Hellos of others are not answered. Frames come parted (es_frame_parse) and leave as header and body
// (es_frame_build).
module es_efe_control #(
    parameter int DATA_W        = 64,            // bits of tdata
    parameter int SLOTS         = 16,            // frames of both windows
    parameter int FRAME_BYTES   = 1500,          // largest frame, 576 to 9216
    parameter int ACK_DELAY_NS  = 50_000,        // ns until a single frame is acknowledged
    parameter int GREET_NS      = 5_000_000,     // ns between Hellos
    parameter int ASK_NS        = 1_000_000,     // ns between questions for credit, and between Closes
    parameter int HEARTBEAT_NS  = 100_000_000,   // ns of silence until the peer is asked for a sign
    parameter int DEAD_AFTER_NS = 1_000_000_000  // ns of silence until a session is dead, below 2^31
) (
    input wire clk,
    input wire rst,

    input wire         open,
    input wire         broken,        // the reader of bodies found what no good peer sends
    input wire         active,
    input wire         want_classic,
    input wire [ 31:0] features,      // bits of the Hello that are offered beside CLASSIC: what the owner of the bodies speaks
    input wire [127:0] node,
    input wire [ 31:0] fresh,         // a random number, not 0
    input wire [ 31:0] now,           // ns

    output logic         up,
    output logic         session_rst,  // holds both halves
    output logic         classic,
    output logic [ 31:0] agreed,       // bits of `features` that both sides offer
    output logic [ 15:0] body_bytes,   // the longest body that the peer takes
    output logic [127:0] peer,         // its node ID

    // Frames that come.
    input  wire es_wire_pkg::header_t              s_hdr_header,
    input  wire                                    s_hdr_valid,
    output logic                                   s_hdr_ready,
    input  wire                       [DATA_W-1:0] s_axis_tdata,
    input  wire                                    s_axis_tlast,
    input  wire                                    s_axis_tvalid,
    output logic                                   s_axis_tready,

    output es_wire_pkg::header_t header,  // of the frame that is at work

    // The receiving half.
    output logic        rx_valid,
    input  wire         rx_take,
    input  wire         rx_beyond,
    input  wire         rx_in_order,
    output logic        rx_body,      // beats of the body are for it
    input  wire  [31:0] rx_next,
    input  wire  [31:0] rx_credit,
    input  wire         rx_gap,
    output logic [31:0] peer_first,

    // The sending half.
    output logic        ack_valid,
    output logic        begin_credit,
    output logic [31:0] begin_window,
    input  wire         tx_busy,
    input  wire         tx_violation,
    input  wire         tx_due,
    input  wire         tx_again,
    input  wire  [31:0] tx_sequence,
    input  wire  [15:0] tx_length,
    output logic        tx_sent,
    input  wire  [31:0] tx_next,
    input  wire         tx_starved,
    input  wire         tx_body_ends,  // a body has left

    // The controller.
    output logic        sample_valid,
    output logic [31:0] sample,
    output logic [31:0] sample_sent,

    // Frames that leave; es_efe puts in the SACK block.
    output es_wire_pkg::header_t                m_hdr_header,
    output logic                                m_hdr_valid,
    input  wire                                 m_hdr_ready,
    output logic                 [  DATA_W-1:0] m_axis_tdata,
    output logic                 [DATA_W/8-1:0] m_axis_tkeep,
    output logic                                m_axis_tlast,
    output logic                                m_axis_tvalid,
    input  wire                                 m_axis_tready,

    output logic [31:0] stat_sessions,
    output logic [31:0] stat_dropped,    // frames of no session, or seen before
    output logic [31:0] stat_violations
);
  localparam int BYTES = DATA_W / 8;
  localparam int HELLO_W = 8 * es_wire_pkg::HELLO_BYTES;
  localparam int BEATS = (HELLO_W + DATA_W - 1) / DATA_W;

  if (FRAME_BYTES < 576 || FRAME_BYTES > 9216 || DEAD_AFTER_NS < 0 || HEARTBEAT_NS > DEAD_AFTER_NS / 4) begin : gen_check
    $error("es_efe_control: FRAME_BYTES is not 576 to 9216, or HEARTBEAT_NS above a quarter of DEAD_AFTER_NS");
  end

  // Life.
  localparam logic [2:0] LISTEN = 3'd0, HALF = 3'd1, GREET = 3'd2, CONFIRM = 3'd3, LIVE = 3'd4, CLOSING = 3'd5;

  logic [2:0] life;
  logic [31:0] epoch, peer_epoch, heard, asked, began;
  logic [63:0] packet_number;
  logic [15:0] peer_window;
  logic [ 7:0] close_reason;
  logic [1:0] closes, unanswered;
  logic [5:0] violations;

  assign up = life == LIVE;
  assign begin_window = {16'd0, peer_window};

  // Frames that come: one step after the other, the next header waits until all is done.
  localparam logic [2:0] IDLE = 3'd0, NUMBER = 3'd1, BEGIN = 3'd2, TELL = 3'd3, KIND = 3'd4, BODY = 3'd5, GREETED = 3'd6, LOOK = 3'd7;

  logic [2:0] step;
  logic [1:0] wait_begin;
  logic ours, greeting, answer;
  logic check_number, number_new, number_done, echoed;
  logic [31:0] last_echo;
  /* verilator lint_off UNUSEDSIGNAL */
  logic [BEATS*DATA_W-1:0] hello_bytes;
  logic [3:0] hello_beat;
  es_wire_pkg::hello_t hello;
  /* verilator lint_on UNUSEDSIGNAL */
  logic hello_good, is_hello;

  // Times that have passed, a clock late: of a state, they are used from its second clock on.
  logic [2:0] life_before;
  logic silent, silent_long, silent_half, asked_heartbeat, asked_ask, asked_greet, ack_late, greeted_long, settled;
  logic [31:0] echo_due;  // when the echoed frame would have been sent, had the peer answered at once
  assign settled = life == life_before;

  // Taken at once, so that the next one can be read while this body comes.
  always_ff @(posedge clk) if (s_hdr_valid && s_hdr_ready) header <= s_hdr_header;
  assign s_hdr_ready = step == IDLE;
  assign ours = header.dst_epoch == epoch && header.src_epoch == peer_epoch && (life == HALF || life == CONFIRM || life == LIVE);
  assign greeting = header.kind == es_wire_pkg::HELLO && header.dst_epoch == '0 && header.src_epoch != '0 && open &&
      (life == LISTEN || life == HALF);
  assign answer = header.kind == es_wire_pkg::HELLO_ACK && header.dst_epoch == epoch && header.src_epoch != '0 && life == GREET;
  assign hello = es_wire_pkg::swap24(hello_bytes[HELLO_W-1:0]);
  assign hello_good = header.body_length >= 16'd24 && hello.max_frame_bytes >= 16'd576 && hello.max_frame_bytes <= 16'd9216 &&
      hello.window_frames != '0;

  es_replay replay (
      .clk,
      .rst(rst || life == LISTEN || life == GREET),
      .number(header.packet_number),
      .check(check_number),
      .is_new(number_new),
      .done(number_done)
  );

  assign s_axis_tready = step == BODY;
  assign rx_valid = step == KIND && header.kind == es_wire_pkg::DATA && life == LIVE;

  // What is owed to the peer.
  logic owe_now, owe_later, owe_before, owe_answer, ask;
  logic [31:0] owe_since, echo_ts, echo_at;
  logic echo_have, acks_leave, hello_leaves, answer_leaves, close_leaves, ask_leaves;

  logic [15:0] frame_bytes;
  assign frame_bytes = hello.max_frame_bytes < 16'(FRAME_BYTES) ? hello.max_frame_bytes : 16'(FRAME_BYTES);

  always_ff @(posedge clk) begin
    check_number <= 1'b0;
    ack_valid <= 1'b0;
    life_before <= life;
    silent <= now - heard > HEARTBEAT_NS;
    silent_long <= now - heard > DEAD_AFTER_NS;
    silent_half <= now - heard > (DEAD_AFTER_NS / 2);
    greeted_long <= now - began > DEAD_AFTER_NS;
    asked_heartbeat <= now - asked > HEARTBEAT_NS;
    asked_ask <= now - asked > ASK_NS;
    asked_greet <= now - asked > GREET_NS;
    ack_late <= now - owe_since > ACK_DELAY_NS;
    echo_due <= header.echo_ts + header.hold;
    begin_credit <= 1'b0;
    sample_valid <= 1'b0;

    // What left.
    if (acks_leave) begin
      owe_now   <= 1'b0;
      owe_later <= 1'b0;
    end
    if (answer_leaves) owe_answer <= 1'b0;
    if (ask_leaves) ask <= 1'b0;

    case (step)
      IDLE: if (s_hdr_valid) step <= LOOK;
      LOOK: begin
        rx_body <= 1'b0;
        is_hello <= greeting || answer;
        hello_beat <= '0;
        if (ours) begin
          check_number <= 1'b1;
          step <= NUMBER;
        end else begin
          if (!greeting && !answer) stat_dropped <= stat_dropped + 1'b1;
          step <= header.body_length == '0 ? IDLE : BODY;
        end
      end
      NUMBER:
      if (number_done) begin
        step <= header.body_length == '0 ? IDLE : BODY;
        // The session may have ended since this frame was looked at.
        if (!ours || !number_new || (life == HALF && header.kind != es_wire_pkg::HELLO) ||
            (life == CONFIRM && header.kind != es_wire_pkg::CLOSE && !header.flags.ack)) begin
          stat_dropped <= stat_dropped + 1'b1;
        end else begin
          heard <= now;
          unanswered <= '0;
          step <= TELL;
          if (life != LIVE) begin
            life <= LIVE;
            stat_sessions <= stat_sessions + 1'b1;
            wait_begin <= 2'd3;
            step <= BEGIN;
          end
        end
      end
      BEGIN: begin
        // The halves leave their reset, and the sender gets its first credit.
        if (wait_begin != 2'd0) wait_begin <= wait_begin - 1'b1;
        if (wait_begin == 2'd1) begin
          ack_valid <= 1'b1;
          begin_credit <= 1'b1;
        end
        if (wait_begin == 2'd0) step <= TELL;
      end
      TELL:
      if (!tx_busy && !ack_valid) begin
        ack_valid <= header.flags.ack;
        if (header.flags.echo && !(echoed && header.echo_ts == last_echo)) begin
          echoed <= 1'b1;
          last_echo <= header.echo_ts;
          sample_valid <= 1'b1;
          sample <= now - echo_due;
          sample_sent <= header.echo_ts;
        end
        step <= KIND;
      end
      KIND: begin
        step <= header.body_length == '0 ? IDLE : BODY;
        case (header.kind)
          es_wire_pkg::DATA: begin
            rx_body <= rx_take;
            if (rx_beyond) violations <= violations + 1'b1;
            else begin
              echo_have <= 1'b1;
              echo_ts   <= header.tx_ts;
              echo_at   <= now;
              if (rx_take && rx_in_order && !header.flags.ack_now && !owe_later) begin
                owe_later <= 1'b1;
                owe_since <= now;
              end else owe_now <= 1'b1;
            end
          end
          es_wire_pkg::ACK:
          if (header.flags.ack_now) begin
            echo_have <= 1'b1;
            echo_ts   <= header.tx_ts;
            echo_at   <= now;
            owe_now   <= 1'b1;
          end
          es_wire_pkg::HELLO: begin
            echo_have <= 1'b1;
            echo_ts   <= header.tx_ts;
            echo_at   <= now;
            owe_now   <= 1'b1;
          end
          es_wire_pkg::CLOSE: life <= LISTEN;
          default: ;
        endcase
      end
      BODY:
      if (s_axis_tvalid) begin
        if (hello_beat != 4'(BEATS)) hello_beat <= hello_beat + 1'b1;
        if (s_axis_tlast) begin
          rx_body <= 1'b0;
          step <= is_hello ? GREETED : IDLE;
        end
      end
      default: begin
        // A Hello, or the answer to ours; what is said about it may have changed since its header came.
        step <= IDLE;
        if (hello_good && (greeting || answer)) begin
          echo_have <= 1'b1;
          echo_ts   <= header.tx_ts;
          echo_at   <= now;
          if (answer || life == LISTEN || header.src_epoch != peer_epoch) begin
            peer_epoch <= header.src_epoch;
            peer_first <= header.sequence_number;
            peer_window <= hello.window_frames;
            peer <= hello.node;
            classic <= want_classic && hello.features[0];
            agreed <= features & hello.features & ~es_wire_pkg::CLASSIC;
            body_bytes <= (frame_bytes - 16'd96) & 16'hFFFC;
          end
          if (answer) begin
            heard <= now;
            life <= CONFIRM;
            // At once.
            asked <= now - GREET_NS;
            echoed <= 1'b1;
            last_echo <= header.echo_ts;
          end else begin
            owe_answer <= 1'b1;
            heard <= now;
            life <= HALF;
            if (life == LISTEN || header.src_epoch != peer_epoch) begin
              epoch  <= fresh;
              echoed <= 1'b0;
            end
          end
        end
      end
    endcase

    // Time.
    if (hello_leaves || close_leaves) begin
      asked <= now;
      asked_greet <= 1'b0;
      asked_ask <= 1'b0;
    end
    if (owe_later && owe_before && ack_late) owe_now <= 1'b1;
    owe_before <= owe_later && !acks_leave;
    if (close_leaves) closes <= closes - 1'b1;

    case (life)
      LISTEN: begin
        violations <= '0;
        owe_now <= 1'b0;
        owe_later <= 1'b0;
        ask <= 1'b0;
        echo_have <= 1'b0;
        unanswered <= '0;
        if (open && active) begin
          life  <= GREET;
          epoch <= fresh;
          began <= now;
          asked <= now - GREET_NS;
        end
      end
      HALF:
      if (settled && silent_long) begin
        life <= LISTEN;
        owe_answer <= 1'b0;
      end
      GREET:   if (!open || (settled && greeted_long)) life <= LISTEN;
      CONFIRM: if (settled && silent_half) life <= LISTEN;
      LIVE: begin
        if (settled && silent && asked_heartbeat) begin
          ask <= 1'b1;
          asked <= now;
          asked_heartbeat <= 1'b0;
          asked_ask <= 1'b0;
          if (unanswered != 2'd3) unanswered <= unanswered + 1'b1;
        end else if (tx_starved && asked_ask) begin
          ask <= 1'b1;
          asked <= now;
          asked_heartbeat <= 1'b0;
          asked_ask <= 1'b0;
        end
        if (unanswered == 2'd3 && silent_long) life <= LISTEN;
        if (tx_violation) violations <= violations + 1'b1;
        if (!open || broken || violations == 6'd63) begin
          life <= CLOSING;
          close_reason <= open ? 8'd2 : 8'd1;
          closes <= 2'd3;
          asked <= now - ASK_NS;
        end
      end
      CLOSING: if (closes == '0) life <= LISTEN;
      default: ;
    endcase

    if (rst) begin
      life <= LISTEN;
      step <= IDLE;
      owe_answer <= 1'b0;
      echoed <= 1'b0;
      wait_begin <= '0;
      unanswered <= '0;
      closes <= '0;
      heard <= now;
      asked <= now;
      stat_sessions <= '0;
      stat_dropped <= '0;
    end
  end

  for (genvar i = 0; i < BEATS; i++) begin : gen_hello
    always_ff @(posedge clk) if (step == BODY && s_axis_tvalid && hello_beat == 4'(i)) hello_bytes[DATA_W*i+:DATA_W] <= s_axis_tdata;
  end

  // Held until the session is there, and a clock more, so that what was agreed is theirs.
  always_ff @(posedge clk) begin
    session_rst <= rst || life != LIVE;
    if (rst) stat_violations <= '0;
    else if ((rx_valid && rx_beyond) || tx_violation) stat_violations <= stat_violations + 1'b1;
  end

  // Frames that leave. Those with a body of ours wait until the bodies of Data frames before them have left.
  logic [3:0] bodies;
  logic own_body, free, in_session;
  logic [BEATS*DATA_W-1:0] own_bytes;
  logic [15:0] own_length;
  logic greet_due;
  logic [31:0] hold;
  es_wire_pkg::hello_t our_hello;

  assign greet_due = (life == GREET || life == CONFIRM) && settled && asked_greet;
  assign free = !m_hdr_valid && !own_body;
  assign hello_leaves = free && bodies == '0 && greet_due;
  assign answer_leaves = free && bodies == '0 && life == HALF && owe_answer;
  assign close_leaves = free && bodies == '0 && life == CLOSING && closes != '0 && settled && asked_ask;
  assign tx_sent = free && in_session && tx_due && bodies != '1;
  assign ask_leaves = free && in_session && !tx_sent && ask;
  assign acks_leave = tx_sent || (free && in_session && (owe_now || ask));
  assign hold = now - echo_at;

  assign our_hello.node = node;
  assign our_hello.max_frame_bytes = 16'(FRAME_BYTES);
  assign our_hello.window_frames = 16'(SLOTS);
  assign our_hello.features = want_classic ? features | es_wire_pkg::CLASSIC : features & ~es_wire_pkg::CLASSIC;

  always_ff @(posedge clk) begin
    // A clock late: what leaves as a session ends is of that session.
    in_session <= life == LIVE && !session_rst && step != BEGIN && wait_begin == 2'd0 && !rst;
    if (m_hdr_valid && m_hdr_ready) m_hdr_valid <= 1'b0;
    bodies <= bodies + 4'(tx_sent && tx_length != '0) - 4'(tx_body_ends);
    if (hello_leaves || answer_leaves || close_leaves || acks_leave) begin
      m_hdr_valid <= 1'b1;
      m_hdr_header.version <= es_wire_pkg::VERSION;
      m_hdr_header.flags <= '0;
      m_hdr_header.flags.ack <= acks_leave || close_leaves || (hello_leaves && life == CONFIRM);
      m_hdr_header.flags.echo <= (acks_leave || answer_leaves || (hello_leaves && life == CONFIRM)) && echo_have && !hold[31];
      m_hdr_header.flags.sack <= acks_leave && rx_gap;
      m_hdr_header.flags.ack_now <= tx_sent ? tx_again : ask_leaves;
      m_hdr_header.flags.retransmission <= tx_sent && tx_again;
      m_hdr_header.dst_epoch <= life == GREET ? '0 : peer_epoch;
      m_hdr_header.src_epoch <= epoch;
      m_hdr_header.sequence_number <= tx_sent ? tx_sequence : (in_session || life == CLOSING ? tx_next : '0);
      m_hdr_header.packet_number <= packet_number;
      m_hdr_header.tx_ts <= now;
      m_hdr_header.echo_ts <= '0;
      m_hdr_header.hold <= '0;
      m_hdr_header.ack <= '0;
      m_hdr_header.credit <= '0;
      m_hdr_header.receiver_cap <= '0;
      if ((acks_leave || answer_leaves || (hello_leaves && life == CONFIRM)) && echo_have && !hold[31]) begin
        m_hdr_header.echo_ts <= echo_ts;
        m_hdr_header.hold <= hold;
      end
      if (acks_leave || close_leaves) begin
        m_hdr_header.ack <= rx_next;
        m_hdr_header.credit <= rx_credit;
        m_hdr_header.receiver_cap <= es_wire_pkg::NO_CAP;
      end else if (hello_leaves && life == CONFIRM) begin
        m_hdr_header.ack <= peer_first;
        m_hdr_header.credit <= peer_first + SLOTS;
        m_hdr_header.receiver_cap <= es_wire_pkg::NO_CAP;
      end
      m_hdr_header.kind <= es_wire_pkg::ACK;
      m_hdr_header.body_length <= tx_sent ? tx_length : '0;
      if (tx_sent) m_hdr_header.kind <= es_wire_pkg::DATA;
      own_bytes <= '0;
      if (hello_leaves || answer_leaves) begin
        m_hdr_header.kind <= hello_leaves ? es_wire_pkg::HELLO : es_wire_pkg::HELLO_ACK;
        m_hdr_header.body_length <= 16'(es_wire_pkg::HELLO_BYTES);
        own_bytes[HELLO_W-1:0] <= es_wire_pkg::swap24(our_hello);
        own_length <= 16'(es_wire_pkg::HELLO_BYTES);
        own_body <= 1'b1;
      end
      if (close_leaves) begin
        m_hdr_header.kind <= es_wire_pkg::CLOSE;
        m_hdr_header.body_length <= 16'd1;
        own_bytes[7:0] <= close_reason;
        own_length <= 16'd1;
        own_body <= 1'b1;
      end
    end else if (m_axis_tvalid && m_axis_tready) begin
      own_bytes  <= (BEATS * DATA_W)'({{DATA_W{1'b0}}, own_bytes} >> DATA_W);
      own_length <= own_length - 16'(BYTES);
      if (m_axis_tlast) own_body <= 1'b0;
    end
    if (life == LISTEN) packet_number <= '0;
    else if (hello_leaves || answer_leaves || close_leaves || acks_leave) packet_number <= packet_number + 1'b1;
    if (rst) begin
      m_hdr_valid <= 1'b0;
      own_body <= 1'b0;
      bodies <= '0;
    end
  end

  assign m_axis_tvalid = own_body;
  assign m_axis_tdata  = own_bytes[DATA_W-1:0];
  assign m_axis_tlast  = own_length <= 16'(BYTES);
  assign m_axis_tkeep  = own_length >= 16'(BYTES) ? '1 : ~({BYTES{1'b1}} << own_length);
endmodule
