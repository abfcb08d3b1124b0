// The DC buffer of the bridge (docs/direct.md): a Function whose BAR is memory, for the host and for the device beside it.
//
// Takes TLPs that were found good, each a header and then its packet, from the host and from the device in turn, and does one after the other, so that what was
// written is there for whoever reads behind it. Memory Requests to the BAR go to memory, Configuration Requests of the host to es_peb_dc_config; a Non-Posted
// Request of another kind, or to another address, ends with UR, anything else is dropped. A BAR has at least 4 KiB, so nothing good crosses its end (2.2.7).
// Completions of a read end at multiples of Max_Payload_Size, which are multiples of the Read Completion Boundary of 128 bytes (2.3.1.1).
//
// Memory is words of DATA_W bits, byte 0 in bits 7:0. It does what `m_mem_*` says in that order, and for each word that is read `s_mem_valid` is high for a clock,
// in the same order and at any time; nothing can hold that up.
//
// `reset`: the Function is reset, its memory is made zero, a word a clock, and `reset_done` is high when nothing of the host is left. What the device asks meanwhile
// is refused. `host_lost`: Completions for the host are dropped. `device_lost`: those for the device, unless they have begun.
//
// Four clocks and its beats for each TLP, eight and its beats for each Completion, beside each other.
module es_peb_dc #(
    parameter int DATA_W = 64,  // bits of tdata and of a word: 64, 128, 256 or 512
    parameter int BITS   = 16,  // it has 2**BITS bytes, 12 to 40
    parameter int READS  = 64   // words that may be on their way from memory, a power of two of at least 4
) (
    input wire clk,
    input wire rst,

    input  wire  reset,
    output logic reset_done,

    input  wire  [15:0] id,       // of the Function
    input  wire  [63:0] address,
    output logic        hit,      // the `address` of the clock before is in the BAR, as that decodes now

    input  wire es_peb_pkg::tlp_t s_host_tlp,
    input  wire                   s_host_valid,
    output logic                  s_host_ready,

    input  wire  [  DATA_W-1:0] s_host_tdata,
    input  wire  [DATA_W/8-1:0] s_host_tkeep,
    input  wire                 s_host_tlast,
    input  wire                 s_host_tvalid,
    output logic                s_host_tready,

    input  wire es_peb_pkg::tlp_t s_device_tlp,
    input  wire                   s_device_valid,
    output logic                  s_device_ready,

    input  wire  [  DATA_W-1:0] s_device_tdata,
    input  wire  [DATA_W/8-1:0] s_device_tkeep,
    input  wire                 s_device_tlast,
    input  wire                 s_device_tvalid,
    output logic                s_device_tready,

    // Completions: for the host or for the device, a header and then the packet.
    input wire host_lost,
    input wire device_lost,
    input wire device_room,  // for a Completion of any length

    output logic [12:0] m_hdr_bytes,
    output logic        m_hdr_relaxed,
    output logic        m_host_valid,
    input  wire         m_host_ready,
    output logic        m_device_valid,
    input  wire         m_device_ready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_host_tvalid,
    input  wire                 m_host_tready,
    output logic                m_device_tvalid,
    input  wire                 m_device_tready,

    output logic host_busy,   // something of the host has begun and not ended
    output logic device_busy,

    output logic [BITS-$clog2(DATA_W/8)-1:0] m_mem_address,  // in words
    output logic                             m_mem_write,
    output logic [               DATA_W-1:0] m_mem_data,
    output logic [             DATA_W/8-1:0] m_mem_strobe,
    output logic                             m_mem_valid,
    input  wire                              m_mem_ready,
    input  wire  [               DATA_W-1:0] s_mem_data,
    input  wire                              s_mem_valid,

    output logic [31:0] stat_host,    // Memory Requests of the host that were done
    output logic [31:0] stat_device,  // of the device
    output logic [31:0] stat_refused  // refused or dropped
);
  localparam int B = DATA_W / 8;
  localparam int LB = $clog2(B);
  localparam int N = DATA_W / 32;  // DW of a word
  localparam int LN = $clog2(N);
  localparam int AW = BITS - LB;

  if ((DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) || BITS < 12 || BITS > 40 || READS < 4 || (1 << $clog2(
          READS
      )) != READS) begin : gen_check
    $error("es_peb_dc: DATA_W is not 64, 128, 256 or 512, BITS not 12 to 40, or READS no power of two of at least 4");
  end

  // LOOK: what the header says is looked up.  JUDGE.  WRITE: data go to memory.  ANSWER: a Completion is owed.  READ: words are asked for.  SKIP: nothing of the
  // packet is left to be used.
  localparam logic [2:0] IDLE = 3'd0, LOOK = 3'd1, JUDGE = 3'd2, WRITE = 3'd3, ANSWER = 3'd4, READ = 3'd5, SKIP = 3'd6;

  logic [2:0] state;
  es_peb_pkg::tlp_t tlp;
  logic from_device, going, turn, pick, idle, take;  // going: beats of the packet still come
  logic load, asked, credit, wipe, wiped;

  assign idle = state == IDLE && !going;
  assign pick = s_device_valid && (turn || !s_host_valid);
  assign s_host_ready = idle && !pick;
  assign s_device_ready = idle && pick;
  assign take = (s_host_valid && s_host_ready) || (s_device_valid && s_device_ready);

  // What it asks for.
  logic [63:0] base_bits, tlp_address;
  logic [63:BITS] base;
  logic open, in_bar, config_write, posted, poisoned, message, to_memory, to_config;
  logic [2:0] payload;
  logic [31:0] read, config_data;
  logic [15:0] owner;
  es_peb_pkg::tlp_t blank;

  assign tlp_address = es_peb_pkg::address(tlp);
  assign base_bits   = {base, BITS'(0)};

  es_peb_dc_config #(
      .BITS(BITS)
  ) space (
      .clk,
      .rst     (rst || reset),
      .register({tlp.dw2[11:8], tlp.dw2[7:2]}),
      .read,
      .enables (tlp.first_be),
      .data    (es_wire_pkg::swap4(tlp.dw3)),
      .write   (config_write),
      .base,
      .open,
      .payload
  );

  always_ff @(posedge clk) begin
    hit <= open && address[63:BITS] == base;
    in_bar <= open && tlp_address[63:BITS] == base;
    to_memory <= es_peb_pkg::group(tlp) == es_peb_pkg::MEMORY;
    to_config <= es_peb_pkg::group(tlp) == es_peb_pkg::CONFIG && !from_device;
    message <= es_peb_pkg::group(tlp) == es_peb_pkg::MESSAGE;
    posted <= es_peb_pkg::class_of(tlp) != es_peb_pkg::NON_POSTED;
    poisoned <= tlp.ep && tlp.fmt[1];
    blank <= es_peb_pkg::completion(tlp);
    config_data <= es_wire_pkg::swap4(read);
    owner <= id;
  end

  logic serve_write, serve_read, serve_config;
  assign serve_write  = to_memory && tlp.fmt[1] && in_bar && !poisoned;
  assign serve_read   = to_memory && !tlp.fmt[1] && in_bar;
  assign serve_config = to_config && !poisoned;
  assign config_write = state == JUDGE && serve_config && tlp.fmt[1];

  // Where its data are: the first word, the words behind it, the first DW in a word.
  logic [AW-1:0] at;
  logic [9:0] more;
  logic [LN-1:0] lead;
  logic [11:0] reach;
  logic [B-1:0] first_strobe, last_strobe;
  logic [LN-1:0] final_dw;

  assign lead = tlp_address[LN+1:2];
  assign reach = 12'(lead) + 12'(es_peb_pkg::length_dw(tlp)) - 12'd1;
  assign final_dw = reach[LN-1:0];
  always_ff @(posedge clk) begin
    if (state == LOOK) begin
      more <= 10'(reach >> LN);
      first_strobe <= '1;
      first_strobe[{lead, 2'b00}+:4] <= tlp.first_be;
      last_strobe <= '1;
      if (tlp.length != 10'd1) last_strobe[{final_dw, 2'b00}+:4] <= tlp.last_be;
    end else if (state == READ && asked) more <= more - 1'b1;
  end

  // The packet: its header is dropped, data come out as words.
  logic [DATA_W-1:0] in_data, word_data;
  logic [B-1:0] in_keep, word_strobe;
  logic [LB:0] in_bytes;
  logic in_last, in_valid, in_ready, word_last, word_valid, word_ready, first_word;
  logic c_valid, c_ready, told;

  assign in_data = from_device ? s_device_tdata : s_host_tdata;
  assign in_keep = from_device ? s_device_tkeep : s_host_tkeep;
  assign in_last = from_device ? s_device_tlast : s_host_tlast;
  assign in_valid = going && (from_device ? s_device_tvalid : s_host_tvalid);
  assign s_host_tready = going && !from_device && in_ready;
  assign s_device_tready = going && from_device && in_ready;
  always_comb begin
    in_bytes = '0;
    for (int i = 0; i < N; i++) if (in_keep[4*i]) in_bytes = (LB + 1)'(4 * i + 4);
  end
  assign c_valid = state == LOOK || (state == WRITE && !told) || state == SKIP;

  es_axis_unpack #(
      .DATA_W(DATA_W)
  ) unpack (
      .clk,
      .rst,
      .s_axis_tdata (in_data),
      .s_axis_bytes (in_bytes),
      .s_axis_tlast (in_last),
      .s_axis_tvalid(in_valid),
      .s_axis_tready(in_ready),
      .c_offset     ({lead, 2'b00}),
      .c_bytes      (state == LOOK ? (tlp.fmt[0] ? 16'd16 : 16'd12) : state == WRITE ? 16'({es_peb_pkg::length_dw(tlp), 2'b00}) : 16'd0),
      .c_drop       (state != WRITE),
      .c_end        (state != LOOK),
      .c_valid,
      .c_ready,
      .m_data       (word_data),
      .m_strb       (word_strobe),
      .m_last       (word_last),
      .m_valid      (word_valid),
      .m_ready      (word_ready)
  );

  // To memory.
  logic [AW-1:0] wipe_at;
  logic [$clog2(READS):0] owed;  // words that were asked for and not used

  assign load = m_mem_ready || !m_mem_valid;
  assign word_ready = load && state == WRITE;
  assign asked = state == READ && load && credit;
  assign wipe = reset && !wiped && idle && !take && load;

  always_ff @(posedge clk) begin
    if (state == LOOK) at <= tlp_address[BITS-1:LB];
    else if (asked || (word_valid && word_ready)) at <= at + 1'b1;
    if (load) begin
      m_mem_write   <= state != READ;
      m_mem_address <= state == WRITE || state == READ ? at : wipe_at;
      m_mem_data    <= state == WRITE ? word_data : '0;
      m_mem_strobe  <= '1;
      if (state == WRITE) m_mem_strobe <= word_strobe & (first_word ? first_strobe : '1) & (word_last ? last_strobe : '1);
    end
    if (state == LOOK) first_word <= 1'b1;
    else if (word_valid && word_ready) first_word <= 1'b0;
  end

  logic words_taken;
  always_ff @(posedge clk) begin
    if (load) m_mem_valid <= asked || (word_valid && word_ready) || wipe;
    if (wipe) wipe_at <= wipe_at + 1'b1;
    if (wipe && wipe_at == '1) wiped <= 1'b1;
    if (!reset) begin
      wipe_at <= '0;
      wiped   <= 1'b0;
    end
    if (asked && !words_taken) owed <= owed + 1'b1;
    else if (words_taken && !asked) owed <= owed - 1'b1;
    if (rst) begin
      m_mem_valid <= 1'b0;
      wipe_at <= '0;
      wiped <= 1'b0;
      owed <= '0;
    end
  end
  assign credit = owed != ($clog2(READS) + 1)'(READS);
  assign reset_done = reset && wiped && !m_mem_valid && !host_busy;

  // What is owed to whoever asked.
  es_peb_pkg::tlp_t note;
  logic note_ready, note_served;

  assign note_served = serve_read || serve_config;
  assign note = es_peb_pkg::filled(
      blank, owner, note_served ? es_peb_pkg::SUCCESS : es_peb_pkg::UNSUPPORTED, serve_config && !tlp.fmt[1], config_data
  );

  always_ff @(posedge clk) begin
    case (state)
      IDLE: if (take) state <= LOOK;
      LOOK: if (c_ready) state <= JUDGE;
      JUDGE: state <= serve_write ? WRITE : posted ? SKIP : ANSWER;
      WRITE: if (word_valid && word_ready && word_last) state <= IDLE;
      ANSWER: if (note_ready) state <= serve_read ? READ : SKIP;
      READ: if (asked && more == '0) state <= SKIP;
      default: if (c_ready) state <= IDLE;
    endcase
    told <= state == WRITE && (told || c_ready);
    if (take) begin
      going <= 1'b1;
      from_device <= pick;
      turn <= !pick;
    end else if (in_valid && in_ready && in_last) going <= 1'b0;
    if (rst) begin
      state <= IDLE;
      going <= 1'b0;
      told  <= 1'b0;
      turn  <= 1'b0;
    end
  end
  always_ff @(posedge clk) if (idle) tlp <= pick ? s_device_tlp : s_host_tlp;

  // What a Completion is made of: its header, for whom, whether it has words of memory, the low address bits of the first, and how many DW.
  es_peb_pkg::tlp_t cpl, next_cpl;
  logic next_device, next_words, next_valid, next_ready, for_device, has_words;
  logic [6:0] next_low, low;
  logic [10:0] next_left, left;

  es_fifo #(
      .WIDTH(148),
      .DEPTH(4)
  ) notes (
      .clk,
      .rst,
      .s_data ({note, from_device, serve_read, tlp_address[8:2], es_peb_pkg::length_dw(tlp)}),
      .s_valid(state == ANSWER),
      .s_ready(note_ready),
      .m_data ({next_cpl, next_device, next_words, next_low, next_left}),
      .m_valid(next_valid),
      .m_ready(next_ready)
  );

  logic [DATA_W-1:0] word;
  logic some, word_used;
  /* verilator lint_off PINCONNECTEMPTY */
  es_fifo_block #(
      .WIDTH(DATA_W),
      .DEPTH(READS)
  ) words (
      .clk,
      .rst,
      .s_data (s_mem_data),
      .s_valid(s_mem_valid),
      .s_ready(),             // `owed`
      .m_data (word),
      .m_valid(some),
      .m_ready(word_used),
      .used   ()
  );
  /* verilator lint_on PINCONNECTEMPTY */
  assign words_taken = some && word_used;

  // NEXT: none.  SIZE: how much goes into the next one.  HEAD: its header.  FRONT, BACK: the header's bytes, in two halves where a beat is 8 bytes.  DATA.  END: the
  // packet leaves.
  localparam logic [2:0] NEXT = 3'd0, SIZE = 3'd1, HEAD = 3'd2, FRONT = 3'd3, BACK = 3'd4, DATA = 3'd5, END = 3'd6;

  logic [2:0] step;
  logic [10:0] part, room, most;  // DW
  logic [10:0] unsent;
  logic is_last, lost, swallow, begins, out_valid, out_ready, out_last, ends;

  assign next_ready = step == NEXT;
  assign most = 11'd32 << payload;
  assign room = most - (11'(low) & (most - 1'b1));
  assign lost = for_device ? device_lost : host_lost;
  assign m_hdr_bytes = cpl.fmt[1] ? 13'd12 + {1'b0, es_peb_pkg::length_dw(cpl) [9:0], 2'b00} : 13'd12;
  assign m_hdr_relaxed = cpl.attr[1];
  assign m_host_valid = step == HEAD && !for_device && !lost;
  assign m_device_valid = step == HEAD && for_device && !lost && device_room;
  assign begins = (m_host_valid && m_host_ready) || (m_device_valid && m_device_ready);

  logic piece, piece_ready, piece_last;
  logic [DATA_W-1:0] piece_data;
  logic [LB-1:0] piece_offset;
  logic [LB:0] piece_bytes, space_bytes;
  logic [127:0] head;

  assign head = es_peb_pkg::swap16(cpl);
  assign space_bytes = (LB + 1)'(B) - {1'b0, piece_offset};
  always_comb begin
    piece = 1'b0;
    piece_data = word;
    piece_offset = '0;
    piece_bytes = (LB + 1)'(B);
    piece_last = 1'b0;
    case (step)
      FRONT: begin
        piece = 1'b1;
        piece_data = DATA_W'(head);
        if (DATA_W == 64) piece_bytes = (LB + 1)'(8);
        else begin
          piece_bytes = (LB + 1)'(cpl.fmt[1] && !has_words ? 16 : 12);
          piece_last  = !has_words;
        end
      end
      BACK: begin
        piece = 1'b1;
        piece_data = DATA_W'(head[127:64]);
        piece_bytes = (LB + 1)'(cpl.fmt[1] && !has_words ? 8 : 4);
        piece_last = !has_words;
      end
      DATA: begin
        piece = some;
        piece_offset = {low[LN-1:0], 2'b00};
        piece_last = {unsent, 2'b00} <= 13'(space_bytes);
        piece_bytes = piece_last ? {unsent[LN:0], 2'b00} : space_bytes;
      end
      default: ;
    endcase
  end
  assign word_used = step == DATA && piece_ready;

  always_ff @(posedge clk) begin
    case (step)
      NEXT: begin
        cpl <= next_cpl;
        for_device <= next_device;
        has_words <= next_words;
        low <= next_low;
        left <= next_left;
        if (next_valid) step <= SIZE;
      end
      SIZE: begin
        part <= left < room ? left : room;
        is_last <= !has_words || left <= room;
        if (has_words) begin
          cpl.fmt[1] <= 1'b1;
          cpl.length <= left < room ? left[9:0] : room[9:0];
        end
        step <= HEAD;
      end
      HEAD: begin
        unsent  <= part;
        swallow <= lost;
        if (begins || lost) step <= FRONT;
      end
      FRONT: if (piece_ready) step <= DATA_W == 64 ? BACK : has_words ? DATA : END;
      BACK:  if (piece_ready) step <= has_words ? DATA : END;
      DATA:
      if (piece && piece_ready) begin
        low <= low + 7'(piece_bytes >> 2);
        unsent <= unsent - 11'(piece_bytes >> 2);
        if (piece_last) step <= END;
      end
      default:
      if (ends) begin
        step <= is_last ? NEXT : SIZE;
        left <= left - part;
        // Byte Count of what is left, from the first byte on; and the next one begins at a boundary.
        {cpl.tag[3:0], cpl.last_be, cpl.first_be} <= {cpl.tag[3:0], cpl.last_be, cpl.first_be} - {part[9:0], 2'b00} + 12'(cpl.dw2[1:0]);
        cpl.dw2[6:0] <= '0;
        swallow <= 1'b0;
      end
    endcase
    if (step != HEAD && step != NEXT && step != SIZE && !for_device && host_lost && !ends) swallow <= 1'b1;
    if (rst) step <= NEXT;
  end

  logic [DATA_W-1:0] packed_data;
  logic [B-1:0] packed_keep;
  logic packed_last, packed_valid, packed_ready;

  es_axis_pack #(
      .DATA_W(DATA_W)
  ) pack (
      .clk,
      .rst,
      .s_data       (piece_data),
      .s_offset     (piece_offset),
      .s_bytes      (piece_bytes),
      .s_last       (piece_last),
      .s_valid      (piece),
      .s_ready      (piece_ready),
      .m_axis_tdata (packed_data),
      .m_axis_tkeep (packed_keep),
      .m_axis_tlast (packed_last),
      .m_axis_tvalid(packed_valid),
      .m_axis_tready(packed_ready)
  );

  /* verilator lint_off PINCONNECTEMPTY */
  es_axis_skid #(
      .DATA_W(DATA_W)
  ) behind (
      .clk,
      .rst,
      .s_axis_tdata (packed_data),
      .s_axis_tkeep (packed_keep),
      .s_axis_tuser (1'b0),
      .s_axis_tlast (packed_last),
      .s_axis_tvalid(packed_valid),
      .s_axis_tready(packed_ready),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tuser (),
      .m_axis_tlast (out_last),
      .m_axis_tvalid(out_valid),
      .m_axis_tready(out_ready)
  );
  /* verilator lint_on PINCONNECTEMPTY */
  assign m_axis_tlast = out_last;
  assign m_host_tvalid = out_valid && !for_device && !swallow;
  assign m_device_tvalid = out_valid && for_device && !swallow;
  assign out_ready = swallow || (for_device ? m_device_tready : m_host_tready);
  assign ends = out_valid && out_ready && out_last;

  // What has begun.
  logic [2:0] host_answers, device_answers;
  logic noted, answered;
  assign noted = state == ANSWER && note_ready;
  assign answered = step == END && ends && is_last;
  always_ff @(posedge clk) begin
    host_answers   <= host_answers + 3'(noted && !from_device) - 3'(answered && !for_device);
    device_answers <= device_answers + 3'(noted && from_device) - 3'(answered && for_device);
    if (rst) begin
      host_answers   <= '0;
      device_answers <= '0;
    end
  end
  assign host_busy   = (!from_device && (state != IDLE || going)) || host_answers != '0;
  assign device_busy = (from_device && (state != IDLE || going)) || device_answers != '0;

  always_ff @(posedge clk) begin
    if (state == JUDGE) begin
      if (serve_read || serve_write) begin
        if (from_device) stat_device <= stat_device + 1'b1;
        else stat_host <= stat_host + 1'b1;
      end else if (!serve_config && !message) stat_refused <= stat_refused + 1'b1;
    end
    if (rst) begin
      stat_host <= '0;
      stat_device <= '0;
      stat_refused <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      stays_inside : assert (!(state == JUDGE && (serve_read || serve_write)) || base_bits[63:BITS] == tlp_address[63:BITS] || reset);
      word_finds_room : assert (!s_mem_valid || owed != '0);
      words_of_the_packet : assert (!word_valid || state == WRITE);
      ends_at_its_end : assert (!ends || step == END);
    end
  end
`endif
endmodule
